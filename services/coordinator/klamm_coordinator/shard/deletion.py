"""Deleting: groups that somebody wants gone, groups and offsets that expired, offsets of deleted topics.

A group is Dead from the moment its tombstones are on their way, and comes back as it was if they fail.
"""

from __future__ import annotations

from klamm.errors import ErrorCode
from klamm_coordinator.effects import GroupsDeleted, NothingFollows
from klamm_coordinator.group.group import Group
from klamm_coordinator.group.states import GroupState
from klamm_coordinator.offsets.messages import DeleteGroups, DeleteGroupsReply
from klamm_coordinator.offsets.rules import expired_partitions, tombstones
from klamm_coordinator.records.schemas import GroupMetadataKey, Record
from klamm_coordinator.shard.state import ShardState
from klamm_coordinator.turn import SessionTimer, Turn

TOMBSTONES_PER_WRITE = 1_000
"""So that a clean-up of any size fits `max.message.bytes`, batch by batch."""

Groups = dict[str, Group]


def handle_delete_groups(request: DeleteGroups, groups: Groups, state: ShardState, turn: Turn) -> None:
    """Deletes what may be deleted; answered when the tombstones are stored."""
    errors = []
    deleted: list[str] = []
    records: list[Record] = []
    for group_id in request.group_ids:
        error = _delete_error(groups.get(group_id))
        errors.append(error)
        if error is ErrorCode.NONE:
            deleted.append(group_id)
            records += _bury(groups[group_id], state, turn)
    reply = DeleteGroupsReply(errors=tuple(errors))
    if deleted:
        then = GroupsDeleted(group_ids=tuple(deleted), reply_id=request.reply_id, reply=reply)
        _append_in_parts(records, then, turn)
    else:
        turn.reply(request.reply_id, reply)


def on_groups_deleted(
    deleted: GroupsDeleted, error: ErrorCode | None, groups: Groups, state: ShardState, turn: Turn
) -> None:
    """The tombstones are stored, or not; or only some, if a part before the last was refused."""
    if error is None and any(group_id in state for group_id in deleted.group_ids):
        error = ErrorCode.UNKNOWN_SERVER_ERROR
    for group_id in deleted.group_ids:
        group = groups[group_id]
        assert group.state is GroupState.DEAD, (group_id, group.state)
        if error is None:
            del groups[group_id]
            turn.note(f"group={group_id} state=Dead deleted=true")
        else:
            groups[group_id] = Group.revive(group)
    if deleted.reply_id is not None:
        errors = tuple(code or error or ErrorCode.NONE for code in deleted.reply.errors)
        turn.reply(deleted.reply_id, DeleteGroupsReply(errors=errors))


def expire(groups: Groups, state: ShardState, turn: Turn) -> None:
    """Deletes expired offsets (KIP-211), and groups that are left with neither members nor offsets."""
    records: list[Record] = []
    deleted: list[str] = []
    for group in sorted(groups.values(), key=lambda group: group.group_id):
        if group.state is GroupState.DEAD:
            continue
        expired = expired_partitions(
            state.offsets,
            group,
            retention_ms=turn.settings.offsets_retention_ms,
            wall_ms=turn.now.wall_ms,
        )
        if _is_left_with_nothing(group, state, len(expired)):
            deleted.append(group.group_id)
            records += _bury(group, state, turn)
        else:
            records += tombstones(group.group_id, expired)
    if deleted:
        reply = DeleteGroupsReply(errors=())
        then = GroupsDeleted(group_ids=tuple(deleted), reply_id=None, reply=reply)
        _append_in_parts(records, then, turn)
    elif records:
        _append_in_parts(records, NothingFollows(what=f"{len(records)} expired offsets"), turn)


def delete_offsets_of_topics(topics: frozenset[str], groups: Groups, state: ShardState, turn: Turn) -> None:
    """Nobody can read on in a topic that is gone; one of the same name created later is another."""
    records: list[Record] = []
    for group_id in sorted(groups):
        doomed = [partition for partition in state.offsets.partitions_to_delete(group_id) if partition.topic in topics]
        records += tombstones(group_id, doomed)
    if records:
        _append_in_parts(records, NothingFollows(what=f"{len(records)} offsets of deleted topics"), turn)


def _delete_error(group: Group | None) -> ErrorCode:
    if group is None or group.state is GroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if group.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP


def _is_left_with_nothing(group: Group, state: ShardState, expired_count: int) -> bool:
    return (
        group.state is GroupState.EMPTY
        and not group.pending_joins
        and len(state.offsets.partitions_to_delete(group.group_id)) == expired_count
    )


def _bury(group: Group, state: ShardState, turn: Turn) -> list[Record]:
    """The group is Dead from now on; these records make it so for good."""
    for member_id in group.pending_joins:
        turn.timers.cancel(SessionTimer(group.group_id, member_id))
    group.pending_joins.clear()
    group.transition_to(GroupState.DEAD, turn.now.wall_ms)
    offsets = tombstones(group.group_id, state.offsets.partitions_to_delete(group.group_id))
    return [*offsets, Record(GroupMetadataKey(group.group_id), None)]


def _append_in_parts(records: list[Record], then: GroupsDeleted | NothingFollows, turn: Turn) -> None:
    """`then` follows the last part; writes are decided in order."""
    for start in range(0, len(records), TOMBSTONES_PER_WRITE):
        part = tuple(records[start : start + TOMBSTONES_PER_WRITE])
        is_last = start + TOMBSTONES_PER_WRITE >= len(records)
        turn.append(part, then if is_last else NothingFollows(what="part of a deletion"))
