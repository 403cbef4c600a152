"""Klamm's data pipelines on Spark, each a file that can be read, run (`klamm pipeline run`) and given to spark-submit.

Nothing here imports pyspark before a pipeline runs. `job.py` has their common code, and `catalog.py` lists them. No
pipeline uses another, except that `archive` runs `compact`.
"""
