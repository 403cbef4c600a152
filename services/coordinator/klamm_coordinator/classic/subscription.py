"""Reads a consumer's metadata, a ConsumerProtocolSubscription, and reads and writes its assignment, a
ConsumerProtocolAssignment. Every version begins with the fields of the version before.

    subscription   version int16 | topics: int32 count, then strings | user_data bytes
                   from version 1: owned partitions by topic | from 2: generation int32 | from 3: rack string
    assignment     version int16 | partitions by topic: int32 count, then (string, int32 array) | user_data bytes

(Kafka: clients/src/main/resources/common/message/ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from klamm.kafka_types.writer import KafkaWriter
from klamm.model import TopicPartition
from klamm_coordinator.records.codec import SchemaError, SchemaReader

CONSUMER_PROTOCOL_TYPE = "consumer"
_COUNT_START, _NAMES_START = 2, 6
"""The positions of the number of topics and of the first name. A name has two bytes at least, for its length."""
HIGHEST_VERSION = 3
"""The newest version that this module knows. A later version begins with the same fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A consumer's metadata."""

    version: int
    topics: tuple[str, ...]
    owned: frozenset[TopicPartition] = frozenset()
    """The partitions that the consumer reports as its own. A consumer that revokes everything in a rebalance reports
    none."""
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions of one member, as the leader of a classic group assigned them."""

    partitions: frozenset[TopicPartition]
    has_user_data: bool


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Returns the topics that any of these members subscribes to, or None if the metadata of one member does not parse.

    Clients may send any bytes as metadata. The topics that they read are then unknown."""
    topics: set[str] = set()
    try:
        for raw in metadata:
            topics.update(_topics(raw))
    except SchemaError:
        return None
    return frozenset(topics)


def topic_count_max(metadata: bytes) -> int:
    """Returns the most topics that this metadata can name. Does not read their names."""
    names_bytes = len(metadata) - _NAMES_START
    if names_bytes <= 0:
        return 0
    count = int.from_bytes(metadata[_COUNT_START:_NAMES_START], "big", signed=True)
    return max(0, min(count, names_bytes // 2))


def read_subscription(metadata: bytes) -> Subscription:
    """Returns a consumer's metadata. Raises SchemaError."""
    reader = SchemaReader(metadata)
    version = _version(reader)
    topics = tuple(reader.string() for _ in range(reader.array_size()))
    reader.nullable_bytes()
    owned = _read_partitions(reader) if version >= 1 else frozenset()
    if version >= 2:
        reader.int32()
    rack_id = reader.nullable_string() if version >= 3 else None
    return Subscription(version=version, topics=topics, owned=owned, rack_id=rack_id)


def read_assignment(assignment: bytes) -> Assignment:
    """Returns a member's assignment. Empty bytes are an empty assignment. Raises SchemaError."""
    if not assignment:
        return Assignment(frozenset(), has_user_data=False)
    reader = SchemaReader(assignment)
    _version(reader)
    partitions = _read_partitions(reader)
    return Assignment(partitions, has_user_data=bool(reader.nullable_bytes()))


def encode_assignment(partitions: Mapping[str, Iterable[int]], version: int) -> bytes:
    """Returns the assignment of these partitions, by topic, for a consumer that sent a subscription of this version."""
    writer = KafkaWriter().int16(min(version, HIGHEST_VERSION)).array_size(len(partitions))
    for topic, numbers in sorted(partitions.items()):
        writer.string(topic).int32_array(sorted(numbers))
    return writer.nullable_bytes(None).value()


def _topics(raw: bytes) -> list[str]:
    reader = SchemaReader(raw)
    _version(reader)
    return [reader.string() for _ in range(reader.array_size())]


def _version(reader: SchemaReader) -> int:
    version = reader.int16()
    if version < 0:
        raise SchemaError(f"version {version} of the consumer protocol is not supported")
    return version


def _read_partitions(reader: SchemaReader) -> frozenset[TopicPartition]:
    partitions: set[TopicPartition] = set()
    for _ in range(reader.array_size()):
        topic = reader.string()
        partitions.update(TopicPartition(topic, number) for number in reader.int32_array())
    return frozenset(partitions)
