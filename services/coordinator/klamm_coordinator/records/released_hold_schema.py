"""The record of a hold that ended with its group's deletion, in `__consumer_offsets`. Kafka skips such a record.

    key 1002   group string, topic string (classic encoding)
    value 0    topic_id uuid (flexible encoding)

The topic named the group in `retention.hold.groups` when a user deleted the group.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klamm.kafka_types.writer import KafkaWriter
from klamm_coordinator.records.codec import SchemaError, SchemaReader

KEY_VERSION: Final = 1002
"""Far above Kafka's kinds, which are numbered from 0."""
VALUE_VERSION: Final = 0


class ReleasedHoldKey(NamedTuple):
    """The key of a topic that a deleted group does not hold any more."""

    group_id: str
    topic: str


class ReleasedHoldValue(NamedTuple):
    """The topic that named the group when it was deleted."""

    topic_id: bytes
    """The topic's id, 16 bytes long. A later topic of the same name is held."""


def encode_released_hold_key(key: ReleasedHoldKey) -> bytes:
    """Returns the bytes of a record's key."""
    return KafkaWriter().int16(KEY_VERSION).string(key.group_id).string(key.topic).value()


def encode_released_hold_value(value: ReleasedHoldValue) -> bytes:
    """Returns the bytes of a record's value."""
    return KafkaWriter().int16(VALUE_VERSION).use_flexible().uuid(value.topic_id).tagged_fields().value()


def decode_released_hold_value(data: bytes) -> ReleasedHoldValue:
    """Returns the decoded value. Raises SchemaError."""
    reader = SchemaReader(data)
    version = reader.int16()
    if version != VALUE_VERSION:
        raise SchemaError(f"version {version} of the value of a released hold is unknown; expected {VALUE_VERSION}")
    reader.use_flexible()
    value = ReleasedHoldValue(reader.uuid())
    reader.skip_tagged_fields()
    return value
