"""The record of what a group lost in a partition, in `__consumer_offsets`. Kafka has no such record, and skips it.

key 1001   group string, topic string, partition int32 (classic encoding)
value 0    lost_count int64, counted_to int64, last_lost_ms int64 (flexible encoding)
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klamm.kafka_types.writer import KafkaWriter
from klamm_coordinator.records.codec import SchemaError, SchemaReader

KEY_VERSION: Final = 1001
"""Far above Kafka's kinds, which are numbered from 0."""
VALUE_VERSION: Final = 0


class LostRecordsKey(NamedTuple):
    """The key of what a group lost in a partition."""

    group_id: str
    topic: str
    partition: int


class LostRecordsValue(NamedTuple):
    """The records that were deleted before the group read them."""

    lost_count: int
    """The number of offsets, as Kafka counts lag. A compacted partition, and one with transactions, has fewer
    records."""
    counted_to: int
    """The log start offset at the last count. All deleted records before it are counted."""
    last_lost_ms: int
    """The time of the last count that found a loss, in milliseconds since the epoch."""


def encode_lost_records_key(key: LostRecordsKey) -> bytes:
    """Returns the bytes of a record's key."""
    return KafkaWriter().int16(KEY_VERSION).string(key.group_id).string(key.topic).int32(key.partition).value()


def encode_lost_records_value(value: LostRecordsValue) -> bytes:
    """Returns the bytes of a record's value."""
    writer = KafkaWriter().int16(VALUE_VERSION).use_flexible()
    writer.int64(value.lost_count).int64(value.counted_to).int64(value.last_lost_ms)
    return writer.tagged_fields().value()


def decode_lost_records_value(data: bytes) -> LostRecordsValue:
    """Returns the decoded value. Raises SchemaError."""
    reader = SchemaReader(data)
    version = reader.int16()
    if version != VALUE_VERSION:
        raise SchemaError(f"version {version} of the value of lost records is unknown; expected {VALUE_VERSION}")
    reader.use_flexible()
    value = LostRecordsValue(reader.int64(), reader.int64(), reader.int64())
    reader.skip_tagged_fields()
    return value
