"""The sink: rows to records, batch and streaming, at least once; `exactly_once` adds what its name says.

A task waits until everything it wrote is acknowledged; if anything was not, it fails and Spark runs it again. So
nothing is lost, and a task that is run again writes its rows again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from klamm.errors import ConfigError
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


@dataclass
class Written(WriterCommitMessage):
    """What a task acknowledged."""

    record_count: int


class RowSink:
    """What all writers have in common."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._columns = _checked_columns(schema, options)

    def _send_all(self, producer: Producer, batches: Iterable[pa.RecordBatch]) -> int:
        """Produces all rows and waits for their acknowledgement; returns how many. Raises the first error of any."""
        record_count = 0
        pending: list[Any] = []
        for batch in batches:
            sent = self._send(producer, batch)
            # One Arrow batch is on its way while the next is made; no more is held.
            _wait(pending)
            record_count += len(pending)
            pending = sent
        producer.flush()
        _wait(pending)
        return record_count + len(pending)

    def _send(self, producer: Producer, batch: pa.RecordBatch) -> list[Any]:
        rows = batch.num_rows
        columns = [
            batch.column(name).to_pylist() if name in self._columns else [None] * rows
            for name in ("topic", "value", "key", "partition", "headers")
        ]
        if self._options.topic is not None:
            columns[0] = [self._options.topic] * rows
        return [
            producer.send(
                _require_topic(topic), _bytes(value), key=_bytes(key), partition=partition, headers=_headers(headers)
            )
            for topic, value, key, partition, headers in zip(*columns, strict=True)
        ]


class _AtLeastOnce(RowSink):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Produces the rows of one task and waits for their acknowledgement. Runs on an executor.

        Raises the first error of any record."""
        return Written(self._send_all(_producer(self._options.client), iterator))


class KlammBatchWriter(_AtLeastOnce, DataSourceArrowWriter):
    """`df.write.format("klamm")`."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing is left to do: the tasks' records are acknowledged."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was written stays written: at least once."""


class KlammStreamWriter(_AtLeastOnce, DataSourceStreamArrowWriter):
    """`df.writeStream.format("klamm")`."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is left to do: the tasks' records are acknowledged."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was written stays written: at least once."""


def _checked_columns(schema: StructType, options: SinkOptions) -> frozenset[str]:
    """The columns the sink uses; others are left alone, as Spark's Kafka sink leaves them."""
    present = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, types in _COLUMNS.items():
        if name in present and present[name] not in types:
            raise ConfigError(f"column {name} must be {' or '.join(types)}, not {present[name]}")
    if "value" not in present:
        raise ConfigError(f"a klamm sink needs a column named value; there are {', '.join(present)}")
    if "topic" not in present and options.topic is None:
        raise ConfigError("where to write is not said: set the option topic or add a column named topic")
    return frozenset(present) & frozenset(_COLUMNS)


def _wait(pending: list[Any]) -> None:
    for future in pending:
        future.result()


def _require_topic(topic: str | None) -> str:
    if topic is None:
        raise ConfigError("a row has a null topic; set the option topic or fill the column")
    return topic


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _headers(headers: list[Mapping[str, Any]] | None) -> list[tuple[str, bytes | None]] | None:
    return None if headers is None else [(header["key"], header["value"]) for header in headers]


_producers: dict[frozenset[tuple[str, str]], Producer] = {}


def _producer(settings: Mapping[str, str]) -> Producer:
    """The process's producer with these settings: workers outlive their tasks."""
    from klamm import Producer

    key = frozenset(settings.items())
    if key not in _producers:
        _producers[key] = Producer(settings)
    return _producers[key]
