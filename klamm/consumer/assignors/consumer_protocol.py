"""Kafka's ConsumerProtocol: the bytes that the members of a consumer group send to each other.

    Subscription => version int16 | topics [string] | user_data nullable bytes
                    v1+ owned_partitions [topic string, partitions [int32]]
                    v2+ generation_id int32    v3+ rack_id nullable string
    Assignment   => version int16 | assigned_partitions [topic string, partitions [int32]]
                    user_data nullable bytes

The bytes have the classic encoding (`klamm.kafka_types`). A reader ignores fields of newer versions (KIP-429, KIP-792,
KIP-881; ConsumerProtocolSubscription.json)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from klamm.errors import KlammError
from klamm.kafka_types.reader import KafkaReader
from klamm.kafka_types.writer import KafkaWriter
from klamm.model import TopicPartition

SUBSCRIPTION_VERSION = 3
ASSIGNMENT_VERSION = 3
NO_GENERATION = -1


class ConsumerProtocolError(KlammError, ValueError):
    """Bytes of another member do not parse as the consumer protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A member's subscription, which it sends with JoinGroup."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    """Data for the assignor, in its own format."""
    owned: tuple[TopicPartition, ...] = ()
    """The partitions that the member still owns (cooperative protocol)."""
    generation_id: int = NO_GENERATION
    """The generation in which the member got its owned partitions."""
    rack_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A member's assignment, which it receives with SyncGroup."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription, version: int = SUBSCRIPTION_VERSION) -> bytes:
    """Returns the subscription encoded as `version`. Fields that this version does not have are left out."""
    writer = KafkaWriter().int16(version)
    writer.array(sorted(subscription.topics), writer.string).nullable_bytes(subscription.user_data)
    if version >= 1:
        write_partitions(writer, subscription.owned)
    if version >= 2:
        writer.int32(subscription.generation_id)
    if version >= 3:
        writer.nullable_string(subscription.rack_id)
    return writer.value()


def decode_subscription(data: bytes) -> Subscription:
    """Raises ConsumerProtocolError."""
    reader = ConsumerProtocolReader(data)
    version = reader.version()
    return Subscription(
        topics=tuple(reader.array(reader.string)),
        user_data=reader.nullable_bytes(),
        owned=reader.partitions() if version >= 1 else (),
        generation_id=reader.int32() if version >= 2 else NO_GENERATION,
        rack_id=reader.nullable_string() if version >= 3 else None,
    )


def encode_assignment(assignment: Assignment, version: int = ASSIGNMENT_VERSION) -> bytes:
    """Returns the assignment encoded as `version`."""
    writer = KafkaWriter().int16(version)
    write_partitions(writer, assignment.partitions)
    return writer.nullable_bytes(assignment.user_data).value()


def decode_assignment(data: bytes) -> Assignment:
    """Returns the decoded assignment. Empty bytes mean an empty assignment. Raises ConsumerProtocolError."""
    if not data:
        return Assignment(partitions=())
    reader = ConsumerProtocolReader(data)
    reader.version()
    return Assignment(partitions=reader.partitions(), user_data=reader.nullable_bytes())


def write_partitions(writer: KafkaWriter, partitions: Iterable[TopicPartition]) -> None:
    """Writes partitions grouped by topic. Topics and partition numbers are sorted."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    writer.array_size(len(by_topic))
    for topic, numbers in by_topic.items():
        writer.string(topic).int32_array(numbers)


class ConsumerProtocolReader(KafkaReader[bytes]):
    """Reads the bytes of another member."""

    __slots__ = ()

    error = ConsumerProtocolError

    def version(self) -> int:
        version = self.int16()
        if version < 0:
            raise ConsumerProtocolError(f"version {version}; expected 0 or more")
        return version

    def partitions(self) -> tuple[TopicPartition, ...]:
        found = []
        for _ in range(self.array_size()):
            topic = self.string()
            found += [TopicPartition(topic, number) for number in self.int32_array()]
        return tuple(found)
