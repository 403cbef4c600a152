"""Heartbeats, session timeouts, LeaveGroup, commits in a member's name, and the description of classic groups."""

from __future__ import annotations

from klamm.errors import ErrorCode
from klamm_coordinator.classic.group import ClassicGroup
from klamm_coordinator.classic.messages import (
    ClassicGroupDescription,
    ClassicMemberDescription,
    Heartbeat,
    HeartbeatReply,
    LeaveGroup,
    Leaver,
    LeaveReply,
)
from klamm_coordinator.classic.rebalance import (
    complete_join,
    drop_member,
    maybe_complete_join,
    prepare_or_complete,
    start_session,
)
from klamm_coordinator.classic.states import ClassicGroupState
from klamm_coordinator.classic.timers import SessionTimer
from klamm_coordinator.groups.group_context import GroupContext


def handle_heartbeat(group: ClassicGroup, request: Heartbeat, context: GroupContext) -> None:
    """Starts the member's session timeout again. The answer tells the member if it has to join again."""
    context.reply(request.reply_id, HeartbeatReply(error=_heartbeat(group, request, context)))


def _heartbeat(group: ClassicGroup, request: Heartbeat, context: GroupContext) -> ErrorCode:
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.member_error(request.member_id, request.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    start_session(group, group.members[request.member_id], context)
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def on_session_timer(group: ClassicGroup, member_id: str, context: GroupContext) -> None:
    """Removes a member, or a member id that never joined, after its session timeout."""
    if group.remove_pending(member_id):
        _end_join_if_nobody_is_missing(group, context)
        return
    member = group.members[member_id]
    if member.survives_session_end():
        return  # the answer to its parked request starts the session again
    context.note(f"removed a member after its session timeout, group={group.group_id} member={member_id}")
    drop_member(group, member, ErrorCode.UNKNOWN_MEMBER_ID, context)
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        _end_join_if_nobody_is_missing(group, context)
    else:
        prepare_or_complete(group, f"the session of member {member_id} timed out", context)


def _end_join_if_nobody_is_missing(group: ClassicGroup, context: GroupContext) -> None:
    """Ends the join phase, also an initial one, if all remaining members have joined. Called after a member was
    removed."""
    if group.state is ClassicGroupState.PREPARING_REBALANCE and group.has_all_members_joined:
        complete_join(group, context)


def handle_leave(group: ClassicGroup, request: LeaveGroup, context: GroupContext) -> None:
    """Removes the members at once. Each member succeeds or fails by itself."""
    if group.state is ClassicGroupState.DEAD:
        context.reply(request.reply_id, LeaveReply(error=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    errors = tuple(_leave(group, leaver, context) for leaver in request.leavers)
    context.reply(request.reply_id, LeaveReply(members=errors))
    if ErrorCode.NONE not in errors:
        return
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        maybe_complete_join(group, context)
    elif group.state is not ClassicGroupState.EMPTY:
        prepare_or_complete(group, "members left", context)


def _leave(group: ClassicGroup, leaver: Leaver, context: GroupContext) -> ErrorCode:
    member_id = leaver.member_id
    if not member_id and leaver.instance_id is not None:
        member_id = group.static_members.get(leaver.instance_id, "")
    if group.remove_pending(member_id):
        context.timers.cancel(SessionTimer(group.group_id, member_id))
        return ErrorCode.NONE
    error = group.member_error(member_id, leaver.instance_id)
    if error is ErrorCode.NONE:
        context.note(f"a member left, group={group.group_id} member={member_id} reason={leaver.reason or '-'}")
        drop_member(group, group.members[member_id], ErrorCode.UNKNOWN_MEMBER_ID, context)
    return error


def check_commit(
    group: ClassicGroup, *, generation_id: int, member_id: str, instance_id: str | None, context: GroupContext
) -> ErrorCode:
    """Returns NONE if offsets may be committed in this member's name, otherwise the error. A member's commit counts as
    a heartbeat.

    A client that is no member (generation -1) may commit only while the group is Empty. No member may commit in
    CompletingRebalance, because it must first learn which partitions it owns."""
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation_id < 0 and group.state is ClassicGroupState.EMPTY:
        return ErrorCode.NONE
    if generation_id < 0 and not member_id and instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.member_error(member_id, instance_id)
    if error is not ErrorCode.NONE:
        return error
    if generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    start_session(group, group.members[member_id], context)
    return ErrorCode.NONE


def check_transactional_commit(
    group: ClassicGroup, *, generation_id: int, member_id: str, instance_id: str | None, context: GroupContext
) -> ErrorCode:
    """Returns NONE if a transaction may commit offsets in this member's name, otherwise the error (KIP-447). The
    generation must be the group's.

    As in Kafka, a producer that names no member may commit, no matter which members the group has: its transactional id
    fences it."""
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation_id < 0 and (group.state is ClassicGroupState.EMPTY or (not member_id and instance_id is None)):
        return ErrorCode.NONE
    error = group.member_error(member_id, instance_id)
    if error is not ErrorCode.NONE:
        return error
    return ErrorCode.NONE if generation_id == group.generation_id else ErrorCode.ILLEGAL_GENERATION


def describe(group: ClassicGroup) -> ClassicGroupDescription:
    """Returns the description of a group. Metadata and assignments are empty unless the group is Stable."""
    is_stable = group.state is ClassicGroupState.STABLE
    return ClassicGroupDescription(
        group_id=group.group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_name=(group.protocol_name or "") if is_stable else "",
        generation_id=group.generation_id,
        leader=group.leader or "",
        members=tuple(
            ClassicMemberDescription(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata(group.protocol_name) if is_stable else b"",
                assignment=member.assignment if is_stable else b"",
                rebalance_timeout_ms=member.rebalance_timeout_ms,
            )
            for _, member in sorted(group.members.items())
        ),
    )
