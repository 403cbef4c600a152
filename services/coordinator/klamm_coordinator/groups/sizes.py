"""The memory that parts of a group take, in bytes: the bytes of names and data, and constants for the objects.

The constants are upper bounds of what CPython takes, with the timers of a member and the time at which it joined.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from klamm_coordinator.records.consumer_group_schemas import (
    ConsumerMemberMetadata,
    Current,
    PartitionMetadata,
    ResolvedRegex,
    Target,
)
from klamm_coordinator.records.group_topic_schema import GroupTopicKey
from klamm_coordinator.records.lost_records_schema import LostRecordsKey
from klamm_coordinator.records.schemas import GroupMetadataValue, GroupRecord, OffsetCommitKey, OffsetCommitValue

GROUP_BYTES: Final = 1_600
MEMBER_BYTES: Final = 1_150
CONSUMER_MEMBER_BYTES: Final = 1_450
STORED_MEMBER_BYTES: Final = 250
PENDING_MEMBER_BYTES: Final = 400
PROTOCOL_BYTES: Final = 200
TOPIC_BYTES: Final = 110
"""A topic that a member subscribes to, or that an expression matches, without its name."""
PARTITION_BYTES: Final = 110
"""A partition in an assignment of the consumer protocol."""
GROUP_TOPIC_BYTES: Final = 300
"""The partitions that a topic had when the group began to read it, without the topic's name."""
LOST_RECORDS_BYTES: Final = 350
"""What a group lost in a partition, without the topic's name."""
OFFSET_BYTES: Final = 300
"""A committed offset, without the topic's name and the metadata."""


def text_bytes(text: str | None) -> int:
    """Returns the bytes of a text's characters. A character that is not ASCII counts as four bytes."""
    if text is None:
        return 0
    return len(text) if text.isascii() else 4 * len(text)


def texts_bytes(texts: Iterable[str], overhead_bytes: int) -> int:
    """Returns the bytes of many texts with `overhead_bytes` each."""
    return sum(overhead_bytes + text_bytes(text) for text in texts)


def offset_bytes(topic: str, metadata: str) -> int:
    """Returns the bytes of a committed offset."""
    return OFFSET_BYTES + text_bytes(topic) + text_bytes(metadata)


def group_topic_bytes(topic: str) -> int:
    """Returns the bytes of a topic that a group reads."""
    return GROUP_TOPIC_BYTES + text_bytes(topic)


def lost_records_bytes(topic: str) -> int:
    """Returns the bytes of what a group lost in a partition."""
    return LOST_RECORDS_BYTES + text_bytes(topic)


def stored_group_bytes(value: GroupMetadataValue | None) -> int:
    """Returns the bytes of the stored value of a classic group, 0 for a tombstone."""
    if value is None:
        return 0
    return sum(
        STORED_MEMBER_BYTES
        + text_bytes(member.member_id)
        + text_bytes(member.group_instance_id)
        + text_bytes(member.client_id)
        + text_bytes(member.client_host)
        + len(member.subscription)
        + len(member.assignment)
        for member in value.members
    )


def consumer_member_bytes(member: ConsumerMemberMetadata | None) -> int:
    """Returns the bytes of a member of a consumer group, without its id and its partitions. 0 for no member."""
    if member is None:
        return 0
    names = (member.instance_id, member.rack_id, member.client_id, member.client_host, member.server_assignor)
    size_bytes = (
        CONSUMER_MEMBER_BYTES + sum(map(text_bytes, names)) + texts_bytes(member.subscribed_topic_names, TOPIC_BYTES)
    )
    size_bytes += text_bytes(member.subscribed_topic_regex)
    if member.classic is not None:
        protocols = member.classic.protocols
        size_bytes += sum(PROTOCOL_BYTES + text_bytes(protocol.name) + len(protocol.metadata) for protocol in protocols)
    return size_bytes


def regex_bytes(regex: str, resolved: ResolvedRegex | None) -> int:
    """Returns the bytes of an expression with the topics that it matches, 0 for a tombstone."""
    if resolved is None:
        return 0
    return PROTOCOL_BYTES + text_bytes(regex) + texts_bytes(resolved.topics, TOPIC_BYTES)


def current_bytes(current: Current | None) -> int:
    """Returns the bytes of a member's current assignment, 0 for none."""
    if current is None:
        return 0
    return PARTITION_BYTES * (len(current.assigned) + len(current.pending_revocation))


def record_bytes(record: GroupRecord) -> int:
    """Returns the bytes of a record while it is being written. A tombstone counts nothing."""
    key, value = record
    if isinstance(key, OffsetCommitKey) and isinstance(value, OffsetCommitValue):
        return offset_bytes(key.topic, value.metadata)
    if isinstance(key, GroupTopicKey) and value is not None:
        return group_topic_bytes(key.topic)
    if isinstance(key, LostRecordsKey) and value is not None:
        return lost_records_bytes(key.topic)
    match value:
        case GroupMetadataValue():
            return stored_group_bytes(value)
        case ConsumerMemberMetadata():
            return consumer_member_bytes(value)
        case Current():
            return current_bytes(value)
        case Target(partitions):
            return PARTITION_BYTES * len(partitions)
        case PartitionMetadata(topics):
            return texts_bytes((topic.name for topic in topics), TOPIC_BYTES)
        case ResolvedRegex(topics):
            return PROTOCOL_BYTES + texts_bytes(topics, TOPIC_BYTES)
        case _:
            return 0
