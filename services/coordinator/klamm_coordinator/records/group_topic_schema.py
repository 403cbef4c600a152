"""The record of a topic that a group reads, in `__consumer_offsets`. Kafka has no such record, and skips it.

    key 1000   group string, topic string (classic encoding)
    value 0    topic_id uuid, partition_count int32 (flexible encoding)

The value tells which partitions the topic had when the group began to read it. All others are younger than that.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klamm.kafka_types.writer import KafkaWriter
from klamm_coordinator.records.codec import SchemaError, SchemaReader

KEY_VERSION: Final = 1000
"""Far above Kafka's kinds, which are numbered from 0."""
VALUE_VERSION: Final = 0
NO_TOPIC_ID: Final = bytes(16)


class GroupTopicKey(NamedTuple):
    """The key of a topic that a group reads."""

    group_id: str
    topic: str


class GroupTopicValue(NamedTuple):
    """The topic as it was when the group began to read it."""

    topic_id: bytes
    """The topic's id, 16 bytes long; `NO_TOPIC_ID` if the topic did not exist."""
    partition_count: int

    def known_count(self, topic_id: bytes | None) -> int:
        """Returns how many partitions are older than the group. A later topic of the same name has none of them. The id
        is None if the topic is not known now."""
        return self.partition_count if topic_id is None or topic_id == self.topic_id else 0


def encode_group_topic_key(key: GroupTopicKey) -> bytes:
    """Returns the bytes of a record's key."""
    return KafkaWriter().int16(KEY_VERSION).string(key.group_id).string(key.topic).value()


def encode_group_topic_value(value: GroupTopicValue) -> bytes:
    """Returns the bytes of a record's value."""
    writer = KafkaWriter().int16(VALUE_VERSION).use_flexible()
    return writer.uuid(value.topic_id).int32(value.partition_count).tagged_fields().value()


def decode_group_topic_value(data: bytes) -> GroupTopicValue:
    """Returns the decoded value. Raises SchemaError."""
    reader = SchemaReader(data)
    version = reader.int16()
    if version != VALUE_VERSION:
        raise SchemaError(f"version {version} of the value of a group's topic is unknown; expected {VALUE_VERSION}")
    reader.use_flexible()
    value = GroupTopicValue(reader.uuid(), reader.int32())
    reader.skip_tagged_fields()
    return value
