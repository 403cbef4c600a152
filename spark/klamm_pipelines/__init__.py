"""Klamm's data pipelines on Spark, each a file that can be read, run (`klamm pipeline run`) and given to spark-submit.

Nothing here imports pyspark before a pipeline runs. `job.py` is what they have in common, `catalog.py` lists them. No
pipeline uses another, but `archive` has `compact` run.
"""
