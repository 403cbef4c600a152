"""Makes consumer records from the records of a fetched batch, compiled or in pure Python."""

from __future__ import annotations

from typing import Any, Final

from klamm.consumer.record import ConsumerRecord, record_of
from klamm.core import core
from klamm.model import TopicPartition
from klamm.records import RecordSection, decode_section

_KEPT_BYTES_MAX: Final = 1_048_576
"""An answer of this size may be kept as it is."""


def decode_rows(section: RecordSection, tp: TopicPartition, first_offset: int) -> list[ConsumerRecord]:
    """Returns the records from `first_offset` on. Raises a CorruptBatchError."""
    header = section.header
    if core is not None:
        rows = core.decode_rows(_compact(section), tp.topic, tp.partition, header.timestamp_type, first_offset)
        if rows is not None:
            return rows  # type: ignore[no-any-return]
        # The pure decoder says what is wrong.
    records = decode_section(section)
    if records and records[0].offset < first_offset:
        records = [record for record in records if record.offset >= first_offset]
    suffix = (header.timestamp_type, header.partition_leader_epoch)
    prefix: tuple[Any, ...] = tp
    return [record_of(prefix + record + suffix) for record in records]


def _compact(section: RecordSection) -> RecordSection:
    """Returns the section in memory that its records may keep. A record that is kept must not keep a whole answer of
    many batches."""
    data = section.data
    if not isinstance(data, memoryview) or memoryview(data.obj).nbytes <= _KEPT_BYTES_MAX:
        return section
    own = bytes(data[section.start : section.end])
    return section._replace(data=own, start=0, end=len(own))
