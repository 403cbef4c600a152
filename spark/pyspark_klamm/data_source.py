"""The options of a `format("klamm")`, and its reader or writer, as Spark asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pyspark_klamm.early_check import check_address, check_source
from pyspark_klamm.schema import source_schema
from pyspark_klamm.sink_options import sink_options
from pyspark_klamm.source_options import source_options, warn_of_useless
from pyspark_klamm.spark_call import spark_call

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_klamm.exactly_once import ExactlyOnceBatchWriter, ExactlyOnceStreamWriter
    from pyspark_klamm.sink import KlammBatchWriter, KlammStreamWriter
    from pyspark_klamm.source import KlammBatchReader
    from pyspark_klamm.stream_source import KlammStreamReader


class KlammDataSource(DataSource):
    """Topics of a Klamm cluster as tables and streams. A wrong option raises an error with one sentence, from `load()`
    or `save()` unless Spark asks only later."""

    @classmethod
    def name(cls) -> str:
        return "klamm"

    @spark_call()
    def schema(self) -> str:
        check_address(check_source(self.options))
        include_headers = str(self.options.get("includeHeaders", "false")).lower() == "true"
        return source_schema(include_headers=include_headers)

    @spark_call()
    def reader(self, schema: StructType) -> KlammBatchReader:
        from pyspark_klamm.source import KlammBatchReader

        options = source_options(self.options, streaming=False)
        warn_of_useless(self.options, streaming=False)
        reader = KlammBatchReader(options, schema)
        check_address(options)
        return reader

    @spark_call()
    def streamReader(self, schema: StructType) -> KlammStreamReader:
        from pyspark_klamm.stream_source import KlammStreamReader

        options = source_options(self.options, streaming=True)
        warn_of_useless(self.options, streaming=True)
        reader = KlammStreamReader(options, schema)
        check_address(options)
        return reader

    @spark_call()
    def writer(self, schema: StructType, overwrite: bool) -> KlammBatchWriter | ExactlyOnceBatchWriter:
        from pyspark_klamm.exactly_once import ExactlyOnceBatchWriter
        from pyspark_klamm.row_sender import RowSender
        from pyspark_klamm.sink import KlammBatchWriter

        options = sink_options(self.options)
        sender = RowSender(options, schema)
        check_address(options)
        return (ExactlyOnceBatchWriter if options.exactly_once else KlammBatchWriter)(options, sender)

    @spark_call()
    def streamWriter(self, schema: StructType, overwrite: bool) -> KlammStreamWriter | ExactlyOnceStreamWriter:
        from pyspark_klamm.exactly_once import ExactlyOnceStreamWriter
        from pyspark_klamm.row_sender import RowSender
        from pyspark_klamm.sink import KlammStreamWriter

        options = sink_options(self.options)
        sender = RowSender(options, schema)
        check_address(options)
        return (ExactlyOnceStreamWriter if options.exactly_once else KlammStreamWriter)(options, sender)


DefaultSource = KlammDataSource
"""The name by which Spark finds the source in a package `pyspark_*`."""
