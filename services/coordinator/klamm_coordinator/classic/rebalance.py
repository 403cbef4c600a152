"""A rebalance: the join phase, its end, the sync phase.

    prepare -> members join (parked) -> complete_join: all members have joined, or time is up -> joins answered
            -> members sync (parked) -> the leader's assignments are stored -> syncs answered, Stable

A group that was Empty waits `group.initial.rebalance.delay.ms` for more members. It waits again while new members join,
but at most for the longest rebalance timeout (KIP-134).
"""

from __future__ import annotations

from klamm.errors import ErrorCode
from klamm_coordinator.classic.group import ClassicGroup
from klamm_coordinator.classic.member import ClassicMember
from klamm_coordinator.classic.messages import JoinReply, SyncReply
from klamm_coordinator.classic.states import TRANSITIONS, ClassicGroupState
from klamm_coordinator.classic.timers import JoinTimer, SessionTimer, SyncTimer
from klamm_coordinator.groups.group_context import GroupContext, NoteFailure
from klamm_coordinator.records.schemas import GroupMetadataKey, GroupRecord


def prepare_or_complete(group: ClassicGroup, reason: str, context: GroupContext) -> None:
    """Starts a rebalance. If one is under way, ends its join phase if all members have joined."""
    if ClassicGroupState.PREPARING_REBALANCE in TRANSITIONS[group.state]:
        prepare(group, reason, context)
    else:
        maybe_complete_join(group, context)


def prepare(group: ClassicGroup, reason: str, context: GroupContext) -> None:
    """Starts a rebalance: all members have to join again."""
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        for member in group.members.values():
            group.set_assignment(member, b"")
        answer_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, context)
    group.pending_syncs.clear()
    context.timers.cancel(SyncTimer(group.group_id))
    is_initial = group.state is ClassicGroupState.EMPTY
    group.transition_to(ClassicGroupState.PREPARING_REBALANCE, context.now.wall_ms)
    context.note(f"preparing a rebalance, group={group.group_id} generation={group.generation_id} reason={reason}")
    if is_initial:
        _wait_for_first_members(group, context)
    elif group.has_all_members_joined:
        complete_join(group, context)
    else:
        context.schedule(JoinTimer(group.group_id), group.rebalance_timeout_ms)


def maybe_complete_join(group: ClassicGroup, context: GroupContext) -> None:
    """Ends the join phase if all members have joined. Only the timer ends the initial join phase."""
    if (
        group.state is ClassicGroupState.PREPARING_REBALANCE
        and group.previous_state is not ClassicGroupState.EMPTY
        and group.has_all_members_joined
    ):
        complete_join(group, context)


def on_join_timer(group: ClassicGroup, context: GroupContext) -> None:
    """Ends the join phase. An initial join phase is extended if members have joined since the timer was set."""
    assert group.state is ClassicGroupState.PREPARING_REBALANCE, group.state
    remaining_ms = group.initial_rebalance_end_ms - context.now.monotonic_ms
    if group.previous_state is ClassicGroupState.EMPTY and group.new_member_added and remaining_ms > 0:
        group.new_member_added = False
        context.schedule(JoinTimer(group.group_id), min(context.settings.initial_rebalance_delay_ms, remaining_ms))
    else:
        complete_join(group, context)


def complete_join(group: ClassicGroup, context: GroupContext) -> None:
    """Drops the members that did not rejoin and begins the generation. Static members keep their place until their
    session ends.

    If no member rejoined, no leader can be elected. The group then waits until the sessions end."""
    context.timers.cancel(JoinTimer(group.group_id))
    for member in list(group.members.values()):
        if not member.is_awaiting_join and member.instance_id is None:
            drop_member(group, member, ErrorCode.UNKNOWN_MEMBER_ID, context)
            context.note(f"removed a member that did not rejoin, group={group.group_id} member={member.member_id}")
    if group.members and not group.elect_joined_leader():
        context.schedule(JoinTimer(group.group_id), max(group.rebalance_timeout_ms, 1))
        return
    group.new_member_added = False
    group.begin_generation(context.now.wall_ms)
    context.note(
        f"began a generation, group={group.group_id} generation={group.generation_id} state={group.state.value}"
        f" members={len(group.members)} protocol={group.protocol_name} leader={group.leader}"
    )
    if group.members:
        _answer_joins(group, context)
        context.schedule(SyncTimer(group.group_id), group.rebalance_timeout_ms)
    else:
        record = GroupRecord(GroupMetadataKey(group.group_id), group.to_value({}))
        context.append((record,), then=NoteFailure(what=f"group {group.group_id} is empty"))


def on_sync_timer(group: ClassicGroup, context: GroupContext) -> None:
    """Removes members that did not ask for their assignment in time, because no member reads their partitions
    (KAFKA-12890)."""
    silent = list(group.pending_syncs)
    assert silent, "the timer is cancelled when the last member syncs"
    for member_id in silent:
        drop_member(group, group.members[member_id], ErrorCode.UNKNOWN_MEMBER_ID, context)
    prepare(group, f"{len(silent)} members did not sync in time", context)


def note_synced(group: ClassicGroup, member_id: str, context: GroupContext) -> None:
    """Notes that the member has asked for its assignment."""
    group.pending_syncs.pop(member_id, None)
    if not group.pending_syncs:
        context.timers.cancel(SyncTimer(group.group_id))


def join_reply(group: ClassicGroup, member_id: str, *, skip_assignment: bool = False) -> JoinReply:
    """Returns the JoinGroup answer that describes the generation to this member."""
    leads = group.leader == member_id
    return JoinReply(
        member_id=member_id,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type or "",
        protocol_name=group.protocol_name or "",
        leader=group.leader or "",
        members=group.joined_members() if leads else (),
        skip_assignment=skip_assignment and leads,
    )


def sync_reply(group: ClassicGroup, member: ClassicMember) -> SyncReply:
    """Returns the SyncGroup answer with the member's assignment."""
    return SyncReply(
        protocol_type=group.protocol_type or "",
        protocol_name=group.protocol_name or "",
        assignment=member.assignment,
    )


def answer_syncs(group: ClassicGroup, error: ErrorCode, context: GroupContext) -> None:
    """Answers every parked sync with the member's assignment, or with `error`. Starts the members' sessions again,
    because session timeouts do not count while a sync is parked."""
    for member in group.members.values():
        if member.sync_reply_id is not None:
            reply_id, member.sync_reply_id = member.sync_reply_id, None
            context.reply(reply_id, SyncReply(error=error) if error else sync_reply(group, member))
            start_session(group, member, context)


def start_session(group: ClassicGroup, member: ClassicMember, context: GroupContext) -> None:
    """Starts the member's session timeout again, after a request of the member."""
    context.schedule(SessionTimer(group.group_id, member.member_id), member.session_timeout_ms)


def drop_member(group: ClassicGroup, member: ClassicMember, error: ErrorCode, context: GroupContext) -> None:
    """Removes a member and answers its parked request with `error`. The caller must then update the group's state."""
    answer_parked(group, member, error, context)
    context.timers.cancel(SessionTimer(group.group_id, member.member_id))
    group.remove(member.member_id)


def answer_parked(group: ClassicGroup, member: ClassicMember, error: ErrorCode, context: GroupContext) -> None:
    """Answers the member's parked request, if any, with `error`."""
    join_id = group.take_join(member)
    if join_id is not None:
        known = "" if error is ErrorCode.UNKNOWN_MEMBER_ID else member.member_id
        context.reply(join_id, JoinReply(error=error, member_id=known))
    sync_id, member.sync_reply_id = member.sync_reply_id, None
    if sync_id is not None:
        context.reply(sync_id, SyncReply(error=error))


def _wait_for_first_members(group: ClassicGroup, context: GroupContext) -> None:
    delay_ms = context.settings.initial_rebalance_delay_ms
    group.initial_rebalance_end_ms = context.now.monotonic_ms + max(group.rebalance_timeout_ms, delay_ms)
    context.schedule(JoinTimer(group.group_id), delay_ms)


def _answer_joins(group: ClassicGroup, context: GroupContext) -> None:
    for member in group.members.values():
        reply_id = group.take_join(member)
        if reply_id is not None:
            context.reply(reply_id, join_reply(group, member.member_id))
        member.is_new = False
        start_session(group, member, context)
