"""`format("klamm")` for Spark, and functions for programs that use it. No jar is needed, and no call registers it.

    from pyspark_klamm import local_session

    spark = local_session("shop")
    clicks = (
        spark.readStream.format("klamm")
        .options(**{"kafka.bootstrap.servers": "localhost:9094", "subscribe": "clicks"})
        .load()
    )

`local_session` opens a session on this machine. `from_klamm` parses the values of records. `source_metrics` and
`offsets_behind_latest` say how far a stream is behind.

Spark finds this module by its name (`pyspark_*`) and loads `DefaultSource`.
Source and sink have the options and columns of Spark's Kafka connector; see `source_options.py`, `sink_options.py` and
`schema.py`.

The modules of a line may use the modules of the lines below it:

data_source                                            the options and the reader or writer of a `format("klamm")`
stream_source, exactly_once; local, payloads            a stream's reader, the exactly-once sink; helpers for users
source, sink                                           a batch's reader; the writers of a task's rows
offset_reader, range_reader, group_progress, row_sender, arrow ...    a batch's offsets, rows to and from records
cluster_access, source_options, sink_options, sink_columns            clients and options
offsets, option_values, schema ...                                    plain values
"""

from __future__ import annotations

from klamm.lazy_names import lazy_names
from pyspark_klamm.worker_process import correct_reports

__getattr__, __dir__, __all__ = lazy_names(globals())
correct_reports()
