"""Removes members that leave or are fenced, and makes the tombstones of deleted groups."""

from __future__ import annotations

from dataclasses import replace

from klamm.errors import ErrorCode
from klamm_coordinator.classic.messages import Leaver
from klamm_coordinator.kip848.change import GroupChange
from klamm_coordinator.kip848.group import STATIC_LEAVE_EPOCH, ConsumerGroup
from klamm_coordinator.kip848.messages import ConsumerGroupHeartbeat, FenceMember
from klamm_coordinator.kip848.subscribe import check_instance
from klamm_coordinator.records.consumer_group_schemas import (
    NO_PARTITIONS,
    CurrentKey,
    GroupEpochKey,
    MemberKey,
    MemberState,
    PartitionMetadataKey,
    RegexKey,
    TargetEpochKey,
    TargetKey,
)
from klamm_coordinator.records.schemas import GroupRecord


def leave(change: GroupChange, request: ConsumerGroupHeartbeat) -> None:
    """Removes a member. A static member may leave for a while, and then keeps its partitions.

    Raises UnknownMemberIdError or FencedInstanceIdError."""
    group, member_id = change.group, request.member_id
    if request.instance_id is not None:
        check_instance(group, request.instance_id, member_id)
    if member_id not in group.members:
        raise ErrorCode.UNKNOWN_MEMBER_ID.exception(f"{member_id!r} is not a member of group {group.group_id!r}")
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        current = replace(
            group.current(member_id),
            member_epoch=STATIC_LEAVE_EPOCH,
            state=MemberState.STABLE,
            pending_revocation=NO_PARTITIONS,
        )
        change.write(CurrentKey(group.group_id, member_id), current)
    else:
        remove(change, member_id)


def remove_leaver(change: GroupChange, leaver: Leaver) -> ErrorCode:
    """Removes a member for an administrator, by its member id or its instance id. Returns NONE or the error."""
    group = change.group
    member_id = leaver.member_id or group.static_members.get(leaver.instance_id or "", "")
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if leaver.instance_id is not None and group.static_members.get(leaver.instance_id) != member_id:
        return ErrorCode.FENCED_INSTANCE_ID
    remove(change, member_id)
    return ErrorCode.NONE


def fence(change: GroupChange, request: FenceMember) -> bool:
    """Removes the late member and returns True. Returns False if the member is gone, or has made progress since."""
    group = change.group
    if request.member_id not in group.members:
        return False
    is_late = request.current is None or request.current == group.current(request.member_id)
    if is_late:
        remove(change, request.member_id)
    return is_late


def remove(change: GroupChange, member_id: str) -> None:
    """Removes a member, so that other members can get its partitions."""
    group_id = change.group_id
    change.write(CurrentKey(group_id, member_id), None)
    if member_id in change.group.targets:
        change.write(TargetKey(group_id, member_id), None)
    change.write(MemberKey(group_id, member_id), None)
    change.bump_epoch()


def tombstones(group: ConsumerGroup) -> tuple[GroupRecord, ...]:
    """Returns the records that delete a group with its members. The last record deletes the group itself. The order is
    Kafka's, because Kafka refuses to load a member's record that is deleted too early."""
    group_id = group.group_id
    return (
        *(GroupRecord(CurrentKey(group_id, member_id), None) for member_id in sorted(group.currents)),
        *(GroupRecord(TargetKey(group_id, member_id), None) for member_id in sorted(group.targets)),
        GroupRecord(TargetEpochKey(group_id), None),
        *(GroupRecord(MemberKey(group_id, member_id), None) for member_id in sorted(group.members)),
        *(GroupRecord(RegexKey(group_id, regex), None) for regex in sorted(group.regexes)),
        GroupRecord(PartitionMetadataKey(group_id), None),
        GroupRecord(GroupEpochKey(group_id), None),
    )
