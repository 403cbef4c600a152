"""Sends the rows of a task as records, in whole batches. The writers (`sink`) decide about the delivery guarantee.

A record without a partition goes to the partition that Kafka's clients choose for its key. Without a key, or with
another partitioner than the default one, all such rows of a batch go to one partition.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from klamm.errors import ConfigError
from klamm.producer.config import ProducerConfig
from pyspark_klamm.client_file import with_file
from pyspark_klamm.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from klamm import Producer

_COLUMNS: Final = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
_TIMESTAMP: Final = {"timestamp": ("timestamp",)}
"""The column that is used only with includeTimestamp. Spark's Kafka sink ignores it, so it must not change a copied
topic."""
BATCH_BYTES: Final = 256 * 1024
"""The bytes of records in a batch, unless kafka.batch.size is set. The sink makes whole batches, so that no record
waits for a large batch to fill."""


class TaskSender(Protocol):
    """Sends the rows for a writer. Spark pickles it together with the writer, for every task."""

    def send_all(self, producer: Producer, batches: Iterable[pa.RecordBatch]) -> int:
        """Sends all rows of a task, waits until they are acknowledged, and returns their number. Runs on an executor.
        Raises the first error of any record."""


class RowSender:
    """Sends rows with a sink's columns. Raises ConfigError if a required column is missing, or has another type."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._topic = options.topic
        self._columns = _checked_columns(schema, options)
        client = with_file(options.client, ProducerConfig)
        config = ProducerConfig.parse(client)
        self._goes_by_key = config.partitioner_class == "default" and not config.partitioner_ignore_keys
        wanted_bytes = config.batch_size if "batch.size" in client else BATCH_BYTES
        # A batch may be twice as large.
        self._batch_bytes = max(1, min(wanted_bytes, config.max_request_size // 2))

    def send_all(self, producer: Producer, batches: Iterable[pa.RecordBatch]) -> int:
        """Sends all rows of a task, waits until they are acknowledged, and returns their number."""
        from klamm.arrow.record_packing import pack
        from klamm.arrow.sent_columns import portions

        record_count = 0
        pending: list[Any] = []
        for batch in batches:
            for some in portions(batch):
                rows = self._rows(producer, some)
                sent = [
                    producer.send_packed(topic, records, partition=partition)
                    for topic, partition, records in pack(rows, self._batch_bytes)
                ]
                # Some rows are being sent while the next are encoded. Memory holds only these two portions.
                _wait(pending)
                pending = sent
                record_count += some.num_rows
        _wait(pending)
        return record_count

    def _rows(self, producer: Producer, batch: pa.RecordBatch) -> Any:
        from pyspark_klamm import sink_columns

        columns = {name: batch.column(name) for name in self._columns}
        return sink_columns.rows(
            columns,
            self._topic,
            now_ms=time.time_ns() // 1_000_000,
            partition_count=(lambda name: len(producer.partitions_for(name))) if self._goes_by_key else None,
        )


def _checked_columns(schema: StructType, options: SinkOptions) -> frozenset[str]:
    """Returns the columns that the sink uses. Ignores other columns, as Spark's Kafka sink does. Raises ConfigError."""
    present = {field.name: field.dataType.simpleString() for field in schema.fields}
    known = {**_COLUMNS, **_TIMESTAMP} if options.include_timestamp else _COLUMNS
    for name, types in known.items():
        if name in present and present[name] not in types:
            raise ConfigError(f"column {name} must be {' or '.join(types)}, not {present[name]}")
    if "value" not in present:
        raise ConfigError(f"a klamm sink needs a column named 'value'; the columns are {', '.join(present)}")
    if "topic" not in present and options.topic is None:
        raise ConfigError('no topic: set the option "topic" or add a column named "topic"')
    if options.include_timestamp and "timestamp" not in present:
        raise ConfigError(f"includeTimestamp needs a column named 'timestamp'; the columns are {', '.join(present)}")
    return frozenset(present) & frozenset(known)


def _wait(pending: list[Any]) -> None:
    for future in pending:
        future.result()
