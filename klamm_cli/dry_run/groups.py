"""The errors with which a coordinator would refuse to change a group.

A classic group's description does not name the subscriptions of its members. Their assignments stand for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode

if TYPE_CHECKING:
    from klamm import Admin
    from klamm.admin import GroupDescription
    from klamm.model import TopicPartition

_CONSUMERS: Final = "consumer"
"""The protocol type of groups whose coordinator knows the subscriptions."""


def reset_errors(admin: Admin, group_id: str) -> Iterator[BrokerError]:
    """Yields the error of a request to set offsets of the group. A group that does not exist would be created."""
    try:
        members = admin.describe_groups([group_id])[group_id].members
    except EXCEPTIONS[ErrorCode.GROUP_ID_NOT_FOUND]:
        return
    if members:
        message = f"group {group_id!r} has active members; stop them before changing its offsets"
        yield ErrorCode.NON_EMPTY_GROUP.exception(message)


def deletion_errors(groups: Iterable[GroupDescription]) -> Iterator[BrokerError]:
    """Yields the error of each group that has members, so that it cannot be deleted."""
    for group in groups:
        if group.members:
            yield ErrorCode.NON_EMPTY_GROUP.exception(f"group {group.group_id!r} has active members")


def offset_deletion_errors(group: GroupDescription, partitions: Iterable[TopicPartition]) -> Iterator[BrokerError]:
    """Yields the error of each partition whose offsets cannot be deleted from the group."""
    if group.members and group.protocol_type != _CONSUMERS:
        yield ErrorCode.NON_EMPTY_GROUP.exception(f"group {group.group_id!r} has active members")
        return
    topics = {tp.topic for member in group.members for tp in (*member.assignment, *member.target)}
    topics.update(topic for member in group.members for topic in member.topics)
    is_unknown = group.state in ("PreparingRebalance", "CompletingRebalance")
    for tp in partitions:
        if is_unknown or tp.topic in topics:
            yield ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC.exception(
                f"{tp}: group {group.group_id!r} is subscribed to the topic"
            )


def removal_errors(group: GroupDescription, instances: Iterable[str]) -> Iterator[BrokerError]:
    """Yields the error of each instance that is not a member of the group."""
    known = {member.group_instance_id for member in group.members}
    for instance in instances:
        if instance not in known:
            yield ErrorCode.UNKNOWN_MEMBER_ID.exception(f"{instance}: group {group.group_id!r} has no such member")
