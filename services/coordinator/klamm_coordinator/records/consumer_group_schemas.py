"""The records of a group of the new protocol (KIP-848) in `__consumer_offsets`, byte for byte as Kafka's.

Every key starts with its version (int16), which is its kind; keys are classic, values flexible and of version 0:

    key 3    ConsumerGroupMetadata                  epoch int32
    key 4    ConsumerGroupPartitionMetadata         topics: id uuid, name string, partition count int32, racks (none)
    key 5 m  ConsumerGroupMemberMetadata            the subscription and settings of the member
    key 6    ConsumerGroupTargetAssignmentMetadata  assignment epoch int32
    key 7 m  ConsumerGroupTargetAssignmentMember    the target assignment of the member
    key 8 m  ConsumerGroupCurrentMemberAssignment   the partitions that the member has, and must revoke
    key 16 r ConsumerGroupRegularExpression         the topics that match the expression

Every key begins with the group. In keys marked m the member follows, in keys marked r the expression. (Kafka:
group-coordinator/src/main/resources/common/message/ConsumerGroup*.json)
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from klamm.kafka_types.writer import KafkaWriter
from klamm_coordinator.records.codec import SchemaError, SchemaReader

VALUE_VERSION = 0
_CLASSIC_TAG = 0
"""The tag of the settings of a member of the classic protocol."""


class TopicIdPartition(NamedTuple):
    """A partition of the topic with this id. A later topic of the same name has another id."""

    topic_id: bytes
    """The topic's id, 16 bytes long."""
    partition: int


Partitions = frozenset[TopicIdPartition]
NO_PARTITIONS: Partitions = frozenset()


class MemberState(enum.IntEnum):
    """How far a member is on its way to its target assignment; Kafka's numbers.

    STABLE                the member has all partitions of the target that it knows
    UNREVOKED_PARTITIONS  the member must first revoke partitions
    UNRELEASED_PARTITIONS the member waits for partitions that other members must release
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class GroupEpochKey:
    """The key of a group's epoch (Kafka's ConsumerGroupMetadataKey)."""

    group_id: str


@dataclass(frozen=True, slots=True)
class PartitionMetadataKey:
    """The key of a group's topics (Kafka's ConsumerGroupPartitionMetadataKey)."""

    group_id: str


@dataclass(frozen=True, slots=True)
class MemberKey:
    """The key of a member's subscription and settings (Kafka's ConsumerGroupMemberMetadataKey)."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class TargetEpochKey:
    """The key of a group's assignment epoch (Kafka's ConsumerGroupTargetAssignmentMetadataKey)."""

    group_id: str


@dataclass(frozen=True, slots=True)
class TargetKey:
    """The key of a member's target assignment (Kafka's ConsumerGroupTargetAssignmentMemberKey)."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class CurrentKey:
    """The key of a member's current assignment (Kafka's ConsumerGroupCurrentMemberAssignmentKey)."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class RegexKey:
    """The key of the topics that an expression matches (Kafka's ConsumerGroupRegularExpressionKey)."""

    group_id: str
    regex: str


ConsumerGroupKey = GroupEpochKey | PartitionMetadataKey | MemberKey | TargetEpochKey | TargetKey | CurrentKey | RegexKey

_KEY_VERSIONS: dict[type[ConsumerGroupKey], int] = {
    GroupEpochKey: 3,
    PartitionMetadataKey: 4,
    MemberKey: 5,
    TargetEpochKey: 6,
    TargetKey: 7,
    CurrentKey: 8,
    RegexKey: 16,
}
_KEYS = {version: key for key, version in _KEY_VERSIONS.items()}


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """The epoch of a group, which grows when members, subscriptions or topics change."""

    epoch: int


class TopicMetadata(NamedTuple):
    """A topic that the group reads, as it was when the target was computed."""

    topic_id: bytes
    name: str
    partition_count: int


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """The topics that a group subscribes to, in the order of their names."""

    topics: tuple[TopicMetadata, ...]


class SupportedProtocol(NamedTuple):
    """An assignor that a member of the classic protocol supports, and the member's metadata for it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class ClassicSettings:
    """What a member of the classic protocol has told the coordinator in JoinGroup (Kafka's ClassicMemberMetadata)."""

    session_timeout_ms: int
    protocols: tuple[SupportedProtocol, ...]
    """The member's protocols in order of preference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberMetadata:
    """The subscription and settings of a member, as its heartbeats give them."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    """The names of the topics that the member subscribes to, sorted."""
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicSettings | None = None
    """The settings of a member that uses the classic protocol in this group, or None if it uses the consumer
    protocol."""


@dataclass(frozen=True, slots=True)
class TargetEpoch:
    """The group epoch that the target assignment was computed for."""

    assignment_epoch: int


@dataclass(frozen=True, slots=True)
class Target:
    """The target assignment of a member."""

    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """The current assignment of a member."""

    member_epoch: int
    previous_member_epoch: int
    """The epoch before the current one. It is still accepted, because the answer with the current epoch may have been
    lost."""
    state: MemberState
    assigned: Partitions
    pending_revocation: Partitions
    """The partitions that the member has to revoke. No other member gets them before that."""

    @property
    def owned(self) -> Partitions:
        """The partitions that no other member may get now."""
        return self.assigned | self.pending_revocation


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a regular expression matched."""

    topics: tuple[str, ...]
    """The names of the topics that matched, sorted."""
    version: int
    """The version of the metadata that the expression was matched against."""
    timestamp_ms: int


ConsumerGroupValue = (
    GroupEpoch | PartitionMetadata | ConsumerMemberMetadata | TargetEpoch | Target | Current | ResolvedRegex
)


def encode_consumer_group_key(key: ConsumerGroupKey) -> bytes:
    """Returns the bytes of a record's key."""
    writer = KafkaWriter().int16(_KEY_VERSIONS[type(key)]).string(key.group_id)
    match key:
        case MemberKey() | TargetKey() | CurrentKey():
            writer.string(key.member_id)
        case RegexKey():
            writer.string(key.regex)
    return writer.value()


def decode_consumer_group_key(version: int, reader: SchemaReader) -> ConsumerGroupKey | None:
    """Returns the key, whose version was read already, or None if the version is of another kind. Raises
    SchemaError."""
    kind = _KEYS.get(version)
    if kind is None:
        return None
    if kind in (GroupEpochKey, PartitionMetadataKey, TargetEpochKey):
        return kind(reader.string())
    return kind(reader.string(), reader.string())  # type: ignore[call-arg]


def encode_consumer_group_value(value: ConsumerGroupValue) -> bytes:
    """Returns the bytes of a record's value."""
    writer = KafkaWriter().int16(VALUE_VERSION).use_flexible()
    tagged: list[tuple[int, bytes]] = []
    match value:
        case GroupEpoch(epoch) | TargetEpoch(epoch):
            writer.int32(epoch)
        case PartitionMetadata():
            _write_topics(writer, value.topics)
        case ConsumerMemberMetadata():
            _write_member(writer, value)
            if value.classic is not None:
                tagged.append((_CLASSIC_TAG, _classic_settings(value.classic)))
        case Target(partitions):
            _write_partitions(writer, partitions)
        case Current():
            writer.int32(value.member_epoch).int32(value.previous_member_epoch).int8(value.state)
            _write_partitions(writer, value.assigned)
            _write_partitions(writer, value.pending_revocation)
        case ResolvedRegex():
            _write_strings(writer, value.topics)
            writer.int64(value.version).int64(value.timestamp_ms)
    return writer.tagged_fields(tagged).value()


def decode_consumer_group_value(key: ConsumerGroupKey, data: bytes) -> ConsumerGroupValue:
    """Returns the decoded value of a record with this key. Raises SchemaError."""
    reader = SchemaReader(data)
    version = reader.int16()
    if version != VALUE_VERSION:
        raise SchemaError(f"version {version} of the value of {key} is unknown; expected {VALUE_VERSION}")
    reader.use_flexible()
    value = _READ[type(key)](reader)
    if isinstance(value, ConsumerMemberMetadata):
        return replace(value, classic=_read_classic_settings(reader.tagged_fields()))
    reader.skip_tagged_fields()
    return value


def _write_topics(writer: KafkaWriter, topics: Iterable[TopicMetadata]) -> None:
    ordered = sorted(topics, key=lambda topic: topic.name)
    writer.array_size(len(ordered))
    for topic in ordered:
        writer.uuid(topic.topic_id).string(topic.name).int32(topic.partition_count)
        writer.array_size(0).tagged_fields()


def _read_topics(reader: SchemaReader) -> PartitionMetadata:
    return PartitionMetadata(tuple(_read_topic(reader) for _ in range(reader.array_size())))


def _read_topic(reader: SchemaReader) -> TopicMetadata:
    topic_id, name, partition_count = reader.uuid(), reader.string(), reader.int32()
    for _ in range(reader.array_size()):
        reader.int32()
        _read_strings(reader)
        reader.skip_tagged_fields()
    reader.skip_tagged_fields()
    return TopicMetadata(topic_id, name, partition_count)


def _write_member(writer: KafkaWriter, member: ConsumerMemberMetadata) -> None:
    writer.nullable_string(member.instance_id).nullable_string(member.rack_id)
    writer.string(member.client_id).string(member.client_host)
    _write_strings(writer, member.subscribed_topic_names)
    writer.nullable_string(member.subscribed_topic_regex)
    writer.int32(member.rebalance_timeout_ms).nullable_string(member.server_assignor)


def _read_member(reader: SchemaReader) -> ConsumerMemberMetadata:
    return ConsumerMemberMetadata(
        instance_id=reader.nullable_string(),
        rack_id=reader.nullable_string(),
        client_id=reader.string(),
        client_host=reader.string(),
        subscribed_topic_names=_read_strings(reader),
        subscribed_topic_regex=reader.nullable_string(),
        rebalance_timeout_ms=reader.int32(),
        server_assignor=reader.nullable_string(),
    )


def _classic_settings(settings: ClassicSettings) -> bytes:
    """Returns the tagged field of a member of the classic protocol. Kafka writes 1 before a struct that may be null."""
    writer = KafkaWriter(flexible=True).int8(1).int32(settings.session_timeout_ms)
    writer.array_size(len(settings.protocols))
    for protocol in settings.protocols:
        writer.string(protocol.name).bytes_(protocol.metadata).tagged_fields()
    return writer.tagged_fields().value()


def _read_classic_settings(tagged: dict[int, bytes]) -> ClassicSettings | None:
    if _CLASSIC_TAG not in tagged:
        return None
    reader = SchemaReader(tagged[_CLASSIC_TAG], flexible=True)
    if reader.int8() < 0:
        return None
    settings = ClassicSettings(reader.int32(), tuple(_read_protocol(reader) for _ in range(reader.array_size())))
    reader.skip_tagged_fields()
    return settings


def _read_protocol(reader: SchemaReader) -> SupportedProtocol:
    protocol = SupportedProtocol(reader.string(), bytes(reader.bytes_()))
    reader.skip_tagged_fields()
    return protocol


def _read_current(reader: SchemaReader) -> Current:
    return Current(
        member_epoch=reader.int32(),
        previous_member_epoch=reader.int32(),
        state=_member_state(reader.int8()),
        assigned=_read_partitions(reader),
        pending_revocation=_read_partitions(reader),
    )


def _member_state(number: int) -> MemberState:
    """Returns the state with that number. A state of a later Kafka is read as UNKNOWN, as in Kafka."""
    try:
        return MemberState(number)
    except ValueError:
        return MemberState.UNKNOWN


def _write_partitions(writer: KafkaWriter, partitions: Partitions) -> None:
    by_topic = [
        (topic_id, [*numbers])
        for topic_id, numbers in groupby(sorted(partitions), lambda partition: partition.topic_id)
    ]
    writer.array_size(len(by_topic))
    for topic_id, members in by_topic:
        writer.uuid(topic_id).array_size(len(members))
        for member in members:
            writer.int32(member.partition)
        writer.tagged_fields()


def _read_partitions(reader: SchemaReader) -> Partitions:
    partitions: set[TopicIdPartition] = set()
    for _ in range(reader.array_size()):
        topic_id = reader.uuid()
        partitions.update(TopicIdPartition(topic_id, reader.int32()) for _ in range(reader.array_size()))
        reader.skip_tagged_fields()
    return frozenset(partitions)


def _write_strings(writer: KafkaWriter, strings: tuple[str, ...]) -> None:
    writer.array_size(len(strings))
    for string in strings:
        writer.string(string)


def _read_strings(reader: SchemaReader) -> tuple[str, ...]:
    return tuple(reader.string() for _ in range(reader.array_size()))


_READ: dict[type[ConsumerGroupKey], Callable[[SchemaReader], ConsumerGroupValue]] = {
    GroupEpochKey: lambda reader: GroupEpoch(reader.int32()),
    PartitionMetadataKey: _read_topics,
    MemberKey: _read_member,
    TargetEpochKey: lambda reader: TargetEpoch(reader.int32()),
    TargetKey: lambda reader: Target(_read_partitions(reader)),
    CurrentKey: _read_current,
    RegexKey: lambda reader: ResolvedRegex(_read_strings(reader), reader.int64(), reader.int64()),
}
