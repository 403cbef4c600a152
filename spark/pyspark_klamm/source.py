"""The source of batch queries, and the common code of both kinds of readers: the driver plans tasks, executors read.

Spark pickles a reader once per query and unpickles a copy for every task. So a task cannot send state back, and no
attribute may be set after `__init__`, except in the driver's own long-lived process. An exception in a driver-side call
ends the query, so the calls to the cluster retry temporary errors themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_klamm.cluster_access import accesses
from pyspark_klamm.data_loss import LossPolicy
from pyspark_klamm.offset_reader import OffsetReader
from pyspark_klamm.offsets import OffsetRange, SourceOffset, ranges_between
from pyspark_klamm.range_reader import RangeReader
from pyspark_klamm.schema import checked_columns
from pyspark_klamm.source_options import SourceOptions
from pyspark_klamm.spark_call import spark_call
from pyspark_klamm.task_packing import pack

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class RangesPartition(InputPartition):
    """One task of Spark: ranges of one or more topic-partitions."""

    def __init__(self, ranges: list[OffsetRange], topic_ids: dict[str, str]) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        self.topic_ids = topic_ids


class Source:
    """The common code of the batch reader and the stream reader."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._columns = checked_columns(schema)
        self._offsets = OffsetReader(options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields Arrow batches with the rows of one task. Runs on an executor."""
        assert isinstance(partition, RangesPartition)
        with spark_call():
            yield from self._rows(partition)

    def _rows(self, partition: RangesPartition) -> Iterator[pa.RecordBatch]:
        from pyspark_klamm.arrow import ArrowBuilder

        cluster = accesses.get(self._options.client)
        reader = RangeReader(cluster, LossPolicy(self._options.fail_on_data_loss), self._options.poll_timeout_ms)
        builder = ArrowBuilder(self._columns)
        for offset_range in partition.ranges:
            for piece, fetches in reader.pieces(offset_range):
                yield from builder.rows(
                    piece,
                    fetches,
                    check_crcs=cluster.config.check_crcs,
                    max_decompressed_bytes=cluster.config.max_decompressed_batch_bytes,
                )
        yield from builder.finish()
        if partition.ranges:
            reader.check_topics(partition.topic_ids)

    def _tasks(self, ranges: Iterable[OffsetRange], end: SourceOffset) -> list[InputPartition]:
        return [
            RangesPartition(
                task, {offset_range.tp.topic: end.topic_ids[offset_range.tp.topic] for offset_range in task}
            )
            for task in pack(ranges, self._options.tasks)
        ]


class KlammBatchReader(Source, DataSourceReader):
    """The reader of `spark.read.format("klamm")`. It reads all records between the start and the end that the options
    set.

    It supports no filter pushdown. Spark keeps the filters of one query of a DataFrame for the next query, and for
    other uses of the DataFrame in the same query. These then lose records silently (Spark 4.3). Users can restrict a
    query with `assign`, `startingOffsets` and `startingTimestamp`."""

    @spark_call()
    def partitions(self) -> list[InputPartition]:
        """Returns the tasks of a query. Resolves offsets once here, so that all tasks agree on them."""
        begin, end = self._offsets.bounds()
        found = self._offsets.continued(begin, end)
        # If there are no tasks, Spark runs one without a partition.
        return self._tasks(ranges_between(found.offsets, found.finish.offsets), end) or [RangesPartition([], {})]
