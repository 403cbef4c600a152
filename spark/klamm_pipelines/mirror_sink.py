"""The sink of the mirror: Klamm's exactly-once sink, which also writes the offsets that the records got at the
target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource

from klamm.records.header import NO_TIMESTAMP
from klamm_pipelines.offset_syncs import MirroredRunBuilder, encode_key, encode_value
from pyspark_klamm.batch_parts import micro_batch
from pyspark_klamm.exactly_once import ExactlyOnceStreamWriter
from pyspark_klamm.sink_options import sink_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from klamm import Producer

_OWN = "mirror."


class MirrorSink(DataSource):
    """A sink for rows with the columns of a Klamm source, in the order of their partitions."""

    @classmethod
    def name(cls) -> str:
        return "klamm_mirror"

    def streamWriter(self, schema: StructType, overwrite: bool) -> ExactlyOnceStreamWriter:
        options = dict(self.options)
        own = {name.removeprefix(_OWN): options.pop(name) for name in list(options) if name.startswith(_OWN)}
        checked = sink_options(options)
        return ExactlyOnceStreamWriter(checked, MirrorSender(checked.sink_id, own.get("prefix", ""), own["syncs"]))


class MirrorSender:
    """Sends a task's records, and the sync of each of its partitions, in one transaction."""

    def __init__(self, sink_id: str, prefix: str, syncs: str) -> None:
        self._sink_id, self._prefix, self._syncs = sink_id, prefix, syncs

    def send_all(self, producer: Producer, batches: Iterable[pa.RecordBatch]) -> int:
        """Sends the records and the syncs of a task, waits until they are acknowledged, and returns the number of
        records."""
        builders: dict[tuple[str, int], MirroredRunBuilder] = {}
        sent: list[tuple[str, int, int, Any]] = []
        record_count = 0
        for batch in batches:
            sending = self._send_rows(producer, batch)
            _settle(sent, builders)
            sent = sending
            record_count += len(sent)
        producer.flush()
        _settle(sent, builders)
        self._send_syncs(producer, builders)
        return record_count

    def _send_rows(self, producer: Producer, batch: pa.RecordBatch) -> list[tuple[str, int, int, Any]]:
        sent = []
        # A producer gives a record without a timestamp the current time, as MirrorMaker 2 does.
        found_ms = [time_us // 1000 for time_us in batch.column("timestamp").cast("int64").to_pylist()]
        times_ms = [None if timestamp_ms == NO_TIMESTAMP else timestamp_ms for timestamp_ms in found_ms]
        names = ("topic", "partition", "offset", "key", "value", "headers")
        for *row, time_ms in zip(*(batch.column(name).to_pylist() for name in names), times_ms, strict=True):
            topic, partition, offset, key, value, headers = row
            future = producer.send(
                self._prefix + topic,
                value,
                key=key,
                partition=partition,
                timestamp_ms=time_ms,
                headers=None if headers is None else [(header["key"], header["value"]) for header in headers],
            )
            sent.append((topic, partition, offset, future))
        return sent

    def _send_syncs(self, producer: Producer, builders: Mapping[tuple[str, int], MirroredRunBuilder]) -> None:
        task = TaskContext.get()
        assert task is not None
        batch_id = micro_batch(self._sink_id, task.getLocalProperty).batch_id
        futures = [
            producer.send(self._syncs, encode_value(builder.runs), key=encode_key(topic, partition, batch_id))
            for (topic, partition), builder in builders.items()
        ]
        producer.flush()
        for future in futures:
            future.result()


def _settle(sent: list[tuple[str, int, int, Any]], builders: dict[tuple[str, int], MirroredRunBuilder]) -> None:
    """Waits for the records' acknowledgements, and adds their offsets to the builders. Raises the first error of any
    record."""
    for topic, partition, offset, future in sent:
        builders.setdefault((topic, partition), MirroredRunBuilder()).add(offset, future.result().offset)
