"""SyncGroup: the leader sends the assignments of a generation, and every member gets its own.

Members get their assignments only after these are stored, so that the next coordinator knows the same assignments.
Follows Kafka's GroupMetadataManager.classicGroupSyncToClassicGroup.
"""

from __future__ import annotations

from klamm.errors import ErrorCode
from klamm_coordinator.classic.follow_ups import AssignmentStored
from klamm_coordinator.classic.group import ClassicGroup
from klamm_coordinator.classic.messages import SyncGroup, SyncReply
from klamm_coordinator.classic.rebalance import (
    answer_parked,
    answer_syncs,
    note_synced,
    prepare,
    sync_reply,
)
from klamm_coordinator.classic.states import ClassicGroupState
from klamm_coordinator.groups.group_context import GroupContext
from klamm_coordinator.records.schemas import GroupMetadataKey, GroupRecord
from klamm_coordinator.runtime.accounts import Accounts
from klamm_server.runtime.fair_share import CONTINUE


def handle_sync(group: ClassicGroup, request: SyncGroup, context: GroupContext, accounts: Accounts) -> None:
    """Answers, parks or refuses the sync."""
    error = _refusal(group, request)
    if error is not ErrorCode.NONE:
        context.note(
            f"refused a SyncGroup request, group={group.group_id} member={request.member_id}"
            f" generation={request.generation_id} error={error.name}"
        )
        context.reply(request.reply_id, SyncReply(error=error))
        return
    member = group.members[request.member_id]
    note_synced(group, member.member_id, context)
    if group.state is ClassicGroupState.STABLE:
        context.reply(request.reply_id, sync_reply(group, member))
        return
    assert group.state is ClassicGroupState.COMPLETING_REBALANCE, group.state
    answer_parked(group, member, ErrorCode.REBALANCE_IN_PROGRESS, context)
    member.sync_reply_id = request.reply_id
    if group.leader == member.member_id:
        _store_assignments(group, request, context, accounts)


def on_assignment_stored(
    group: ClassicGroup, stored: AssignmentStored, error: ErrorCode, context: GroupContext
) -> None:
    """Makes the generation Stable after its assignments were stored. If the write failed, all members have to join
    again.

    Does nothing if the group has begun another rebalance since, because no member waits for these assignments then."""
    if group.state is not ClassicGroupState.COMPLETING_REBALANCE or group.generation_id != stored.generation_id:
        return
    if error is not ErrorCode.NONE:
        for member in group.members.values():
            group.set_assignment(member, b"")
        answer_syncs(group, error, context)
        prepare(group, f"the assignments could not be stored ({error.name})", context)
        return
    for member in group.members.values():
        group.set_assignment(member, stored.assignments.get(member.member_id, b""))
    answer_syncs(group, ErrorCode.NONE, context)
    group.transition_to(ClassicGroupState.STABLE, context.now.wall_ms)
    context.note(f"the group is stable, group={group.group_id} generation={group.generation_id} state=Stable")


def _refusal(group: ClassicGroup, request: SyncGroup) -> ErrorCode:
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.member_error(request.member_id, request.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    is_consistent = (request.protocol_type or group.protocol_type) == group.protocol_type and (
        request.protocol_name or group.protocol_name
    ) == group.protocol_name
    return ErrorCode.NONE if is_consistent else ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def _store_assignments(group: ClassicGroup, request: SyncGroup, context: GroupContext, accounts: Accounts) -> None:
    """Stores the leader's assignments. Drops those of unknown members, and stores an empty assignment for members
    without one. Without room for them, all members have to join again, as after a write that failed."""
    assignments = {member_id: assignment for member_id, assignment in request.assignments if member_id in group.members}
    then = AssignmentStored(group_id=group.group_id, generation_id=group.generation_id, assignments=assignments)
    value = group.to_value(assignments)
    added_bytes = sum(map(len, assignments.values())) - sum(len(member.assignment) for member in group.members.values())
    if accounts.admits(group.group_id, added_bytes, CONTINUE):
        context.append((GroupRecord(GroupMetadataKey(group.group_id), value),), then=then)
    else:
        accounts.refuse("group", group.group_id, added_bytes, context)
        on_assignment_stored(group, then, ErrorCode.GROUP_MAX_SIZE_REACHED, context)
