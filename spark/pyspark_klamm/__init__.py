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

stream_source, exactly_once; local, payloads            a stream's reader, the exactly-once sink; helpers for users
source, sink                                           a batch's reader; the writers of a task's rows
offset_reader, range_reader, group_progress, row_sender, arrow ...    a batch's offsets, rows to and from records
cluster_access, source_options, sink_options, sink_columns            clients and options
offsets, option_values, schema ...                                    plain values
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

from klamm.lazy_names import lazy_names
from pyspark_klamm.early_check import check_address, check_source
from pyspark_klamm.plain_errors import plain_errors
from pyspark_klamm.schema import source_schema
from pyspark_klamm.sink_options import sink_options
from pyspark_klamm.source_options import source_options, warn_of_useless
from pyspark_klamm.worker_process import correct_reports

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_klamm.exactly_once import ExactlyOnceBatchWriter, ExactlyOnceStreamWriter
    from pyspark_klamm.local import local_session
    from pyspark_klamm.payloads import from_klamm
    from pyspark_klamm.progress import offsets_behind_latest, source_metrics
    from pyspark_klamm.sink import KlammBatchWriter, KlammStreamWriter
    from pyspark_klamm.source import KlammBatchReader
    from pyspark_klamm.stream_source import KlammStreamReader

__all__ = [
    "DefaultSource",
    "KlammDataSource",
    "from_klamm",
    "local_session",
    "offsets_behind_latest",
    "source_metrics",
]

# Workers of Spark import this package, and need none of these.
_MODULES: Final = {
    "from_klamm": "pyspark_klamm.payloads",
    "local_session": "pyspark_klamm.local",
    "offsets_behind_latest": "pyspark_klamm.progress",
    "source_metrics": "pyspark_klamm.progress",
}


class KlammDataSource(DataSource):
    """Topics of a Klamm cluster as tables and streams. A wrong option raises an error with one sentence, from `load()`
    or `save()` unless Spark asks only later."""

    @classmethod
    def name(cls) -> str:
        return "klamm"

    @plain_errors()
    def schema(self) -> str:
        check_address(check_source(self.options))
        include_headers = str(self.options.get("includeHeaders", "false")).lower() == "true"
        return source_schema(include_headers=include_headers)

    @plain_errors()
    def reader(self, schema: StructType) -> KlammBatchReader:
        from pyspark_klamm.source import KlammBatchReader

        options = source_options(self.options, streaming=False)
        warn_of_useless(self.options, streaming=False)
        reader = KlammBatchReader(options, schema)
        check_address(options)
        return reader

    @plain_errors()
    def streamReader(self, schema: StructType) -> KlammStreamReader:
        from pyspark_klamm.stream_source import KlammStreamReader

        options = source_options(self.options, streaming=True)
        warn_of_useless(self.options, streaming=True)
        reader = KlammStreamReader(options, schema)
        check_address(options)
        return reader

    @plain_errors()
    def writer(self, schema: StructType, overwrite: bool) -> KlammBatchWriter | ExactlyOnceBatchWriter:
        from pyspark_klamm.exactly_once import ExactlyOnceBatchWriter
        from pyspark_klamm.row_sender import RowSender
        from pyspark_klamm.sink import KlammBatchWriter

        options = sink_options(self.options)
        sender = RowSender(options, schema)
        check_address(options)
        return (ExactlyOnceBatchWriter if options.exactly_once else KlammBatchWriter)(options, sender)

    @plain_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> KlammStreamWriter | ExactlyOnceStreamWriter:
        from pyspark_klamm.exactly_once import ExactlyOnceStreamWriter
        from pyspark_klamm.row_sender import RowSender
        from pyspark_klamm.sink import KlammStreamWriter

        options = sink_options(self.options)
        sender = RowSender(options, schema)
        check_address(options)
        return (ExactlyOnceStreamWriter if options.exactly_once else KlammStreamWriter)(options, sender)


DefaultSource = KlammDataSource
__getattr__, __dir__ = lazy_names(globals(), _MODULES)
correct_reports()
