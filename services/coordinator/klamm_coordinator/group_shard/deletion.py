"""Deletes groups on request, expired groups and offsets, and offsets of deleted topics.

A group is Dead while its tombstones are being written. If the write fails, it gets its former state again. The records
of a deletion on request also say which topics the group does not hold any more (`releases.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_coordinator.classic.group import ClassicGroup
from klamm_coordinator.classic.groups import ClassicGroups
from klamm_coordinator.classic.states import ClassicGroupState
from klamm_coordinator.classic.timers import SessionTimer
from klamm_coordinator.group_shard.releases import Releases
from klamm_coordinator.group_shard.state import GroupShardState
from klamm_coordinator.groups.group_context import GroupContext, NoteFailure
from klamm_coordinator.kip848.groups import ConsumerGroups
from klamm_coordinator.offsets.expiry import expired_consumer_partitions, expired_partitions
from klamm_coordinator.offsets.group_topics import topic_tombstones
from klamm_coordinator.offsets.messages import DeleteGroups, DeleteGroupsReply
from klamm_coordinator.offsets.rules import tombstones
from klamm_coordinator.records.schemas import GroupMetadataKey, GroupRecord

TOMBSTONES_PER_WRITE = 1_000
"""The most tombstones of one write. It is bounded so that each batch of a large deletion fits into
`max.message.bytes`."""
OFFSETS_PER_EXPIRY_TURN = 10_000
"""The offsets that one turn may expire, which takes some milliseconds. A shard may have a million offsets, and
heartbeats wait during the turn."""


@dataclass(frozen=True, slots=True)
class OffsetExpiryTimer:
    """Due when the shard has to look for expired offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsDeleted:
    """Follows the write of tombstones for groups. The groups are deleted once the tombstones are durable."""

    group_ids: tuple[str, ...]
    """The groups whose tombstones are being written. They are Dead during the write."""
    reply_id: int | None
    """The request's id, or None if the groups had expired."""
    reply: DeleteGroupsReply
    """The answer that is sent if the write succeeds."""


def handle_delete_groups(
    request: DeleteGroups,
    classic: ClassicGroups,
    consumers: ConsumerGroups,
    state: GroupShardState,
    releases: Releases,
    context: GroupContext,
) -> None:
    """Deletes the groups that may be deleted. Sends the answer when their tombstones are stored."""
    errors = []
    doomed = _Doomed()
    for group_id in request.group_ids:
        is_classic = not consumers.has(group_id)
        error = _delete_error(classic.groups.get(group_id)) if is_classic else consumers.delete_error(group_id)
        errors.append(error)
        if error is ErrorCode.NONE:
            doomed.records += releases.records_of_deletion(group_id)
            doomed.add(group_id, classic, consumers, state, context)
    reply = DeleteGroupsReply(errors=tuple(errors))
    if doomed.group_ids:
        doomed.append(GroupsDeleted(group_ids=tuple(doomed.group_ids), reply_id=request.reply_id, reply=reply), context)
    else:
        context.reply(request.reply_id, reply)


def on_groups_deleted(
    deleted: GroupsDeleted, error: ErrorCode, classic: ClassicGroups, state: GroupShardState, context: GroupContext
) -> None:
    """Removes the groups after their tombstones were stored, and answers the request. If any part of the tombstones was
    not stored, the groups get their former state again."""
    if error is ErrorCode.NONE and any(group_id in state for group_id in deleted.group_ids):
        error = ErrorCode.UNKNOWN_SERVER_ERROR
    for group_id in deleted.group_ids:
        group = classic.groups.get(group_id)
        if group is None:
            continue  # a consumer group: the replay of its last record removes it
        assert group.state is ClassicGroupState.DEAD, (group_id, group.state)
        if error is ErrorCode.NONE:
            classic.drop(group_id)
            context.note(f"deleted group={group_id} state=Dead")
        else:
            classic.put(ClassicGroup.revive(group))
    if deleted.reply_id is not None:
        errors = tuple(code or error for code in deleted.reply.errors)
        context.reply(deleted.reply_id, DeleteGroupsReply(errors=errors))


def expire(
    group_ids: list[str],
    classic: ClassicGroups,
    consumers: ConsumerGroups,
    state: GroupShardState,
    context: GroupContext,
) -> None:
    """Deletes expired offsets (KIP-211), and groups that are left with neither members nor offsets.

    Removes groups from the end of `group_ids`, as many as one turn may check."""
    doomed = _Doomed()
    looked_at = 0
    while group_ids and looked_at < OFFSETS_PER_EXPIRY_TURN:
        group_id = group_ids.pop()
        looked_at += 1 + len(state.offsets.of_group(group_id))
        _expire_group(group_id, classic, consumers, state, context, doomed)
    if doomed.group_ids:
        reply = DeleteGroupsReply(errors=())
        doomed.append(GroupsDeleted(group_ids=tuple(doomed.group_ids), reply_id=None, reply=reply), context)
    elif doomed.records:
        doomed.append(NoteFailure(what=f"{len(doomed.records)} expired offsets"), context)


def _expire_group(
    group_id: str,
    classic: ClassicGroups,
    consumers: ConsumerGroups,
    state: GroupShardState,
    context: GroupContext,
    doomed: _Doomed,
) -> None:
    retention_ms, wall_ms = context.settings.offsets_retention_ms, context.now.wall_ms
    consumer_group, group = state.consumer_groups.get(group_id), classic.groups.get(group_id)
    if consumer_group is not None:
        expired = expired_consumer_partitions(state.offsets, consumer_group, retention_ms=retention_ms, wall_ms=wall_ms)
        is_unused = consumers.delete_error(group_id) is ErrorCode.NONE
    elif group is None or group.state is ClassicGroupState.DEAD or consumers.has(group_id):
        return
    else:
        expired = expired_partitions(state.offsets, group, retention_ms=retention_ms, wall_ms=wall_ms)
        is_unused = group.state is ClassicGroupState.EMPTY and not group.pending_joins
    if is_unused and _are_all(expired, group_id, state):
        doomed.add(group_id, classic, consumers, state, context)
    else:
        doomed.records += tombstones(group_id, expired)


def delete_offsets_of_topics(
    topics: frozenset[str], groups: Collection[str], state: GroupShardState, context: GroupContext
) -> None:
    """Deletes the offsets of deleted topics. A later topic of the same name must not use them."""
    doomed = _Doomed()
    for group_id in sorted({*groups, *state.consumer_groups}):
        doomed.records += tombstones(group_id, state.offsets.partitions_to_delete(group_id, topics))
    if doomed.records:
        doomed.append(NoteFailure(what=f"{len(doomed.records)} offsets of deleted topics"), context)


def _delete_error(group: ClassicGroup | None) -> ErrorCode:
    if group is None or group.state is ClassicGroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if group.state is ClassicGroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP


def _are_all(expired: list[TopicPartition], group_id: str, state: GroupShardState) -> bool:
    if not expired:
        return not state.offsets.has_any(group_id)
    return len(state.offsets.partitions_to_delete(group_id)) == len(expired)


@dataclass(slots=True)
class _Doomed:
    """The groups and records of one deletion."""

    group_ids: list[str] = field(default_factory=list)
    records: list[GroupRecord] = field(default_factory=list)
    last_records: list[tuple[GroupRecord, ...]] = field(default_factory=list)
    """The last records of each group of the new protocol. Each group has its own write, and is busy until that write is
    decided."""

    def add(
        self,
        group_id: str,
        classic: ClassicGroups,
        consumers: ConsumerGroups,
        state: GroupShardState,
        context: GroupContext,
    ) -> None:
        """Adds a whole group, which may be deleted, with its offsets."""
        self.group_ids.append(group_id)
        if group_id in classic.groups:
            self.records += _delete(classic.groups[group_id], state, context)
            classic.settle(classic.groups[group_id])
        else:
            self.records += tombstones(group_id, state.offsets.partitions_to_delete(group_id))
            self.records += topic_tombstones(group_id, state.topics)
            self.last_records.append(consumers.delete(group_id))

    def append(self, then: GroupsDeleted | NoteFailure, context: GroupContext) -> None:
        """Appends all records in parts. `then` follows the last part, because writes are decided in order."""
        writes = [
            tuple(self.records[start : start + TOMBSTONES_PER_WRITE])
            for start in range(0, len(self.records), TOMBSTONES_PER_WRITE)
        ]
        writes += self.last_records
        for part in writes[:-1]:
            context.append(part, then=NoteFailure(what="part of a deletion"))
        context.append(writes[-1], then=then)


def _delete(group: ClassicGroup, state: GroupShardState, context: GroupContext) -> list[GroupRecord]:
    """Moves the group to Dead, and returns the tombstones that delete the group and its offsets."""
    for member_id in list(group.pending_joins):
        context.timers.cancel(SessionTimer(group.group_id, member_id))
        group.remove_pending(member_id)
    group.transition_to(ClassicGroupState.DEAD, context.now.wall_ms)
    offsets = tombstones(group.group_id, state.offsets.partitions_to_delete(group.group_id))
    topics = topic_tombstones(group.group_id, state.topics)
    return [*offsets, *topics, GroupRecord(GroupMetadataKey(group.group_id), None)]
