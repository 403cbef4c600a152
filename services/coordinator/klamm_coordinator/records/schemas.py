"""The keys and values of `__consumer_offsets`, byte for byte as Kafka writes and reads them.

Every key and value starts with its version (int16), which for keys is also its kind:

    key 0, 1   OffsetCommitKey    group string, topic string, partition int32
    key 2      GroupMetadataKey   group string
    others     see consumer_group_schemas.py, group_topic_schema.py, lost_records_schema.py and released_hold_schema.py

    OffsetCommitValue              0 1 2 3 4      GroupMetadataValue               0 1 2 3 4
    offset int64                   x x x x x      protocol_type string             x x x x x
    leader_epoch int32                   x x      generation int32                 x x x x x
    metadata string                x x x x x      protocol, leader string?         x x x x x
    commit_timestamp int64         x x x x x      current_state_timestamp int64        x x x
    expire_timestamp int64           x            members: member_id string        x x x x x
    (4 is the flexible encoding)                    group_instance_id string?            x x
                                                    client_id, client_host string  x x x x x
                                                    rebalance_timeout int32          x x x x
                                                    session_timeout int32          x x x x x
                                                    subscription, assignment bytes x x x x x

The coordinator reads every version. It writes keys of version 1 and 2, and values of version 3, or of version 1 if an
expiry is set. Kafka does the same, so that a broker can be downgraded to an older one (KIP-915). A null value
(tombstone) deletes the key. (Kafka:
group-coordinator/src/main/resources/common/message/{OffsetCommit,GroupMetadata}{Key,Value}.json)
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from klamm.kafka_types.writer import KafkaWriter
from klamm_coordinator.records import group_topic_schema, lost_records_schema, released_hold_schema
from klamm_coordinator.records.codec import SchemaError, SchemaReader
from klamm_coordinator.records.consumer_group_schemas import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    decode_consumer_group_key,
    decode_consumer_group_value,
    encode_consumer_group_key,
    encode_consumer_group_value,
)
from klamm_coordinator.records.group_topic_schema import (
    GroupTopicKey,
    GroupTopicValue,
    decode_group_topic_value,
    encode_group_topic_key,
    encode_group_topic_value,
)
from klamm_coordinator.records.lost_records_schema import (
    LostRecordsKey,
    LostRecordsValue,
    decode_lost_records_value,
    encode_lost_records_key,
    encode_lost_records_value,
)
from klamm_coordinator.records.released_hold_schema import (
    ReleasedHoldKey,
    ReleasedHoldValue,
    decode_released_hold_value,
    encode_released_hold_key,
    encode_released_hold_value,
)

OFFSET_COMMIT_KEY_VERSION = 1
GROUP_METADATA_KEY_VERSION = 2
VALUE_VERSION_MAX = 4
_FLEXIBLE_SINCE = 4
_WRITTEN_VALUE_VERSION = 3
_EXPIRING_VALUE_VERSION = 1

NO_TIMESTAMP = -1

# The fields of a version 3 value before the metadata: version, offset, leader epoch, length of the metadata.
_OFFSET_V3_HEAD = struct.Struct(">hqih")
_OFFSET_V3_TIMESTAMP = struct.Struct(">q")
_V3 = b"\x00\x03"
_NO_METADATA = b"\x00\x00"
PLAIN_OFFSET_BYTES = _OFFSET_V3_HEAD.size + _OFFSET_V3_TIMESTAMP.size
"""The size of a version 3 value without metadata, in bytes."""


class OffsetCommitKey(NamedTuple):
    """The key of a committed offset: the group and the partition."""

    group_id: str
    topic: str
    partition: int


class GroupMetadataKey(NamedTuple):
    """The key of a classic group."""

    group_id: str


RecordKey = OffsetCommitKey | GroupMetadataKey | GroupTopicKey | LostRecordsKey | ReleasedHoldKey | ConsumerGroupKey


class OffsetCommitValue(NamedTuple):
    """A committed offset. Timestamps in wall-clock ms; `NO_TIMESTAMP` when not set."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMemberMetadata:
    """A member of a generation, with its assignment."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    """The rebalance timeout. It is -1 in records of version 0, which do not have it. The session timeout then takes its
    place."""
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValue:
    """A generation of a group; without members the group is Empty."""

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    current_state_timestamp_ms: int
    members: tuple[ClassicMemberMetadata, ...]


RecordValue = (
    OffsetCommitValue | GroupMetadataValue | GroupTopicValue | LostRecordsValue | ReleasedHoldValue | ConsumerGroupValue
)


class GroupRecord(NamedTuple):
    """A change of a shard's state. The value None deletes the key."""

    key: RecordKey
    value: RecordValue | None


def encode_key(key: RecordKey) -> bytes:
    """Returns the bytes of a record's key."""
    if isinstance(key, OffsetCommitKey):
        writer = KafkaWriter().int16(OFFSET_COMMIT_KEY_VERSION)
        return writer.string(key.group_id).string(key.topic).int32(key.partition).value()
    if isinstance(key, GroupMetadataKey):
        return KafkaWriter().int16(GROUP_METADATA_KEY_VERSION).string(key.group_id).value()
    if isinstance(key, GroupTopicKey):
        return encode_group_topic_key(key)
    if isinstance(key, LostRecordsKey):
        return encode_lost_records_key(key)
    if isinstance(key, ReleasedHoldKey):
        return encode_released_hold_key(key)
    return encode_consumer_group_key(key)


def encode_value(value: RecordValue | None) -> bytes | None:
    """Returns the bytes of a record's value, or None for a tombstone."""
    match value:
        case None:
            return None
        case OffsetCommitValue():
            return encode_offset_value(value)
        case GroupMetadataValue():
            return _encode_group_value(value)
        case GroupTopicValue():
            return encode_group_topic_value(value)
        case LostRecordsValue():
            return encode_lost_records_value(value)
        case ReleasedHoldValue():
            return encode_released_hold_value(value)
        case _:
            return encode_consumer_group_value(value)


def decode_key(data: bytes) -> RecordKey | None:
    """Returns the key, or None if this coordinator does not know its kind (Kafka skips such records too).

    Raises SchemaError."""
    reader = SchemaReader(data)
    version = reader.int16()
    if 0 <= version <= OFFSET_COMMIT_KEY_VERSION:
        return OffsetCommitKey(reader.string(), reader.string(), reader.int32())
    if version == GROUP_METADATA_KEY_VERSION:
        return GroupMetadataKey(reader.string())
    if version == group_topic_schema.KEY_VERSION:
        return GroupTopicKey(reader.string(), reader.string())
    if version == lost_records_schema.KEY_VERSION:
        return LostRecordsKey(reader.string(), reader.string(), reader.int32())
    if version == released_hold_schema.KEY_VERSION:
        return ReleasedHoldKey(reader.string(), reader.string())
    return decode_consumer_group_key(version, reader)


def decode_value(key: RecordKey, data: bytes) -> RecordValue:
    """Returns the decoded value of a record with this key. Raises SchemaError."""
    if isinstance(key, OffsetCommitKey):
        return decode_offset_value(data)
    if isinstance(key, GroupMetadataKey):
        return decode_group_value(data)
    if isinstance(key, GroupTopicKey):
        return decode_group_topic_value(data)
    if isinstance(key, LostRecordsKey):
        return decode_lost_records_value(data)
    if isinstance(key, ReleasedHoldKey):
        return decode_released_hold_value(data)
    return decode_consumer_group_value(key, data)


def check_offset_value(data: bytes) -> None:
    """Raises SchemaError if `decode_offset_value` would."""
    if len(data) != PLAIN_OFFSET_BYTES or data[:2] != _V3 or data[14:16] != _NO_METADATA:
        decode_offset_value(data)


def offset_timestamps(data: bytes) -> tuple[int, int]:
    """Returns the times of commit and expiry of an encoded offset, in ms; `NO_TIMESTAMP` if one is not set. The caller
    must have checked the value."""
    if data[:2] == _V3:
        (commit_timestamp_ms,) = _OFFSET_V3_TIMESTAMP.unpack_from(data, len(data) - _OFFSET_V3_TIMESTAMP.size)
        return commit_timestamp_ms, NO_TIMESTAMP
    value = decode_offset_value(data)
    return value.commit_timestamp_ms, value.expire_timestamp_ms


def decode_offset_value(data: bytes) -> OffsetCommitValue:
    """Returns the decoded value of a committed offset. Raises SchemaError."""
    if data[:2] == _V3:
        return _decode_offset_value_v3(data)
    reader = SchemaReader(data)
    version = _value_version(reader, "OffsetCommitValue")
    value = OffsetCommitValue(
        offset=reader.int64(),
        leader_epoch=reader.int32() if version >= 3 else -1,
        metadata=reader.string(),
        commit_timestamp_ms=reader.int64(),
        expire_timestamp_ms=reader.int64() if version == 1 else NO_TIMESTAMP,
    )
    reader.skip_tagged_fields()
    return value


def decode_group_value(data: bytes) -> GroupMetadataValue:
    """Returns the decoded value of a classic group. Raises SchemaError."""
    reader = SchemaReader(data)
    version = _value_version(reader, "GroupMetadataValue")
    value = GroupMetadataValue(
        protocol_type=reader.string(),
        generation_id=reader.int32(),
        protocol_name=reader.nullable_string(),
        leader=reader.nullable_string(),
        current_state_timestamp_ms=reader.int64() if version >= 2 else NO_TIMESTAMP,
        members=tuple(_decode_member(reader, version) for _ in range(reader.array_size())),
    )
    reader.skip_tagged_fields()
    return value


def _value_version(reader: SchemaReader, name: str) -> int:
    version = reader.int16()
    if not 0 <= version <= VALUE_VERSION_MAX:
        raise SchemaError(f"{name} version {version} is unknown; expected 0 to {VALUE_VERSION_MAX}")
    if version >= _FLEXIBLE_SINCE:
        reader.use_flexible()
    return version


def _decode_offset_value_v3(data: bytes) -> OffsetCommitValue:
    """Decodes version 3, which nearly every record has. Two unpacks replace five reads, to load a million offsets
    faster."""
    try:
        _, offset, leader_epoch, length = _OFFSET_V3_HEAD.unpack_from(data)
        end = _OFFSET_V3_HEAD.size + length
        (commit_timestamp_ms,) = _OFFSET_V3_TIMESTAMP.unpack_from(data, end)
        metadata = data[_OFFSET_V3_HEAD.size : end].decode() if length else ""
    except (struct.error, UnicodeDecodeError) as error:
        raise SchemaError(f"an OffsetCommitValue of {len(data)} bytes does not parse: {error}") from error
    if length < 0:
        raise SchemaError("the metadata of an OffsetCommitValue is null")
    return OffsetCommitValue(offset, leader_epoch, metadata, commit_timestamp_ms)


def encode_offset_value(value: OffsetCommitValue) -> bytes:
    """Returns the bytes of an offset's value, as `encode_value` does. The shard also keeps offsets in memory in this
    form."""
    metadata = value.metadata.encode()
    if value.expire_timestamp_ms == NO_TIMESTAMP:
        head = _OFFSET_V3_HEAD.pack(_WRITTEN_VALUE_VERSION, value.offset, value.leader_epoch, len(metadata))
        return head + metadata + _OFFSET_V3_TIMESTAMP.pack(value.commit_timestamp_ms)
    writer = KafkaWriter().int16(_EXPIRING_VALUE_VERSION).int64(value.offset).string(value.metadata)
    return writer.int64(value.commit_timestamp_ms).int64(value.expire_timestamp_ms).value()


def _decode_member(reader: SchemaReader, version: int) -> ClassicMemberMetadata:
    member = ClassicMemberMetadata(
        member_id=reader.string(),
        group_instance_id=reader.nullable_string() if version >= 3 else None,
        client_id=reader.string(),
        client_host=reader.string(),
        rebalance_timeout_ms=reader.int32() if version >= 1 else -1,
        session_timeout_ms=reader.int32(),
        subscription=reader.bytes_(),
        assignment=reader.bytes_(),
    )
    reader.skip_tagged_fields()
    return member


def _encode_group_value(value: GroupMetadataValue) -> bytes:
    writer = KafkaWriter().int16(_WRITTEN_VALUE_VERSION).string(value.protocol_type).int32(value.generation_id)
    writer.nullable_string(value.protocol_name).nullable_string(value.leader)
    writer.int64(value.current_state_timestamp_ms).int32(len(value.members))
    for member in value.members:
        writer.string(member.member_id).nullable_string(member.group_instance_id)
        writer.string(member.client_id).string(member.client_host)
        writer.int32(member.rebalance_timeout_ms).int32(member.session_timeout_ms)
        writer.bytes_(member.subscription).bytes_(member.assignment)
    return writer.value()
