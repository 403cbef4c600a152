"""Restores the order of partitions in Spark. The source's tasks may share a partition, and a shuffle mixes their
rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def in_partition_order(records: DataFrame) -> DataFrame:
    """Returns the records so that one task has all records of a partition, sorted by offset.

    Spark cannot sort streams, so a task keeps its part of the micro-batch in memory. maxOffsetsPerTrigger bounds it."""
    return records.repartition("topic", "partition").mapInArrow(_sorted, records.schema)


def _sorted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    found = list(batches)
    if found:
        table = pa.Table.from_batches(found)
        yield from table.sort_by([(name, "ascending") for name in ("topic", "partition", "offset")]).to_batches()
