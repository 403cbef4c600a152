"""JoinGroup: how a member enters a group or a new generation of it.

    no member id, dynamic      gets an id with MEMBER_ID_REQUIRED (KIP-394): a client that ends before it knows its id
                               leaves only that id behind, and no member
    no member id, static       replaces the member with its instance id, or becomes a new member (KIP-345)
    an id that was given out   becomes a member
    a member's id              joins the rebalance under way, or starts one if its metadata changed or it leads;
                               otherwise gets the current generation again, because its first answer was lost

Follows Kafka's GroupMetadataManager.classicGroupJoinToClassicGroup.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from klamm.errors import ErrorCode
from klamm_coordinator.classic.follow_ups import StaticMemberStored
from klamm_coordinator.classic.group import ClassicGroup
from klamm_coordinator.classic.member import ClassicMember
from klamm_coordinator.classic.messages import JoinGroup, JoinReply
from klamm_coordinator.classic.rebalance import (
    answer_parked,
    drop_member,
    join_reply,
    maybe_complete_join,
    prepare,
    prepare_or_complete,
    start_session,
)
from klamm_coordinator.classic.states import ClassicGroupState
from klamm_coordinator.classic.timers import SessionTimer
from klamm_coordinator.groups.group_context import GroupContext, new_member_id
from klamm_coordinator.records.schemas import GroupMetadataKey, GroupRecord
from klamm_coordinator.runtime.accounts import Accounts
from klamm_server.runtime.fair_share import BEGIN, CONTINUE

GROUP_SHARE: Final = 8
"""The members of one group may take this part of the memory of all groups: an eighth."""


def handle_join(group: ClassicGroup, request: JoinGroup, context: GroupContext, accounts: Accounts) -> None:
    """Answers, parks or refuses the join."""
    member_id = request.member_id
    if group.state is ClassicGroupState.DEAD:
        _refuse(request, ErrorCode.COORDINATOR_NOT_AVAILABLE, context)
    elif not _admits(group, member_id, context.settings.group_size_max):
        _refuse_for_size(group, request, context)
    elif not group.supports(request.protocol_type, request.protocols):
        _refuse(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, context)
    elif (error := _member_error(group, request)) is not ErrorCode.NONE:
        _refuse(request, error, context)
    elif not _may_grow(group, request, context, accounts):
        context.reply(request.reply_id, JoinReply(error=ErrorCode.GROUP_MAX_SIZE_REACHED, member_id=member_id))
    elif not member_id and request.instance_id is None:
        _join_dynamic(group, request, context)
    elif not member_id:
        _join_static(group, request, context)
    elif member_id in group.pending_joins and request.instance_id is None:
        _add_member(group, request, member_id, context)
    else:
        _rejoin(group, group.members[member_id], request, context)


def on_static_member_stored(
    group: ClassicGroup, stored: StaticMemberStored, error: ErrorCode, context: GroupContext
) -> None:
    """Answers the join of a static member that has returned, after its record was stored. If the write failed, the
    return is undone.

    Does nothing if the group has begun a rebalance since, or the instance has returned again. The parked join was then
    answered, or takes part in the rebalance."""
    member = group.members.get(stored.member_id)
    if member is None or group.state is not ClassicGroupState.STABLE or group.generation_id != stored.generation_id:
        return
    reply_id = group.take_join(member)
    if reply_id is None:
        return
    if error is ErrorCode.NONE:
        start_session(group, member, context)
        context.reply(reply_id, join_reply(group, member.member_id, skip_assignment=True))
    else:
        context.reply(reply_id, JoinReply(error=error))
        context.timers.cancel(SessionTimer(group.group_id, member.member_id))
        group.replace(member.member_id, stored.former)
        start_session(group, stored.former, context)


def _admits(group: ClassicGroup, member_id: str, size_max: int) -> bool:
    """Returns True if group.max.size allows the member to join. The bound also holds for members that rejoin after it
    was lowered. During a rebalance only members that have joined count, so the last ones to rejoin are refused."""
    member = group.members.get(member_id)
    match group.state:
        case ClassicGroupState.EMPTY | ClassicGroupState.DEAD:
            return True
        case ClassicGroupState.PREPARING_REBALANCE:
            return (member is not None and member.is_awaiting_join) or group.awaiting_join_count < size_max
        case ClassicGroupState.COMPLETING_REBALANCE | ClassicGroupState.STABLE:
            return member is not None or len(group.members) < size_max


def _member_error(group: ClassicGroup, request: JoinGroup) -> ErrorCode:
    """Returns the error if the request names a member that may not join, otherwise NONE."""
    is_new = not request.member_id or (request.member_id in group.pending_joins and request.instance_id is None)
    return ErrorCode.NONE if is_new else group.member_error(request.member_id, request.instance_id)


def _may_grow(group: ClassicGroup, request: JoinGroup, context: GroupContext, accounts: Accounts) -> bool:
    """Returns True if there is room for the member's names and metadata. A member whose metadata do not grow always has
    room.

    A new member is refused before it gets an id, so that it need not ask twice. The metadata of one group have a bound
    of their own, because the leader's answer contains all of them."""
    member = group.members.get(request.member_id or group.static_members.get(request.instance_id or "", ""))
    wanted_bytes = ClassicMember.from_request(request, request.member_id or request.client_id).size_bytes
    if member is not None:
        added_bytes = wanted_bytes - member.size_bytes + len(member.assignment)
    else:
        added_bytes = wanted_bytes
    group_max_bytes = accounts.shares.max_bytes // GROUP_SHARE
    is_admitted = added_bytes <= 0 or (
        group.size_bytes + added_bytes <= group_max_bytes
        and accounts.admits(group.group_id, added_bytes, BEGIN if member is None else CONTINUE)
    )
    if not is_admitted:
        accounts.refuse("group", group.group_id, added_bytes, context)
    return is_admitted


def _refuse_for_size(group: ClassicGroup, request: JoinGroup, context: GroupContext) -> None:
    group.remove_pending(request.member_id)
    context.timers.cancel(SessionTimer(group.group_id, request.member_id))
    member = group.members.get(request.member_id)
    if member is not None:
        drop_member(group, member, ErrorCode.GROUP_MAX_SIZE_REACHED, context)
    context.reply(request.reply_id, JoinReply(error=ErrorCode.GROUP_MAX_SIZE_REACHED))
    maybe_complete_join(group, context)


def _refuse(request: JoinGroup, error: ErrorCode, context: GroupContext) -> None:
    context.note(
        f"refused a JoinGroup request, group={request.group_id} member={request.member_id or '-'} error={error.name}"
    )
    context.reply(request.reply_id, JoinReply(error=error, member_id=request.member_id))


def _join_dynamic(group: ClassicGroup, request: JoinGroup, context: GroupContext) -> None:
    if request.joins_without_id:
        _add_member(group, request, new_member_id(request.client_id, context.rng), context)
    else:
        _give_member_id(group, request, context)


def _give_member_id(group: ClassicGroup, request: JoinGroup, context: GroupContext) -> None:
    if len(group.pending_joins) >= context.settings.pending_members_max:
        _refuse(request, ErrorCode.GROUP_MAX_SIZE_REACHED, context)
        return
    member_id = new_member_id(request.client_id, context.rng)
    group.add_pending(member_id)
    context.schedule(SessionTimer(group.group_id, member_id), request.session_timeout_ms)
    context.reply(request.reply_id, JoinReply(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))


def _add_member(group: ClassicGroup, request: JoinGroup, member_id: str, context: GroupContext) -> None:
    if group.state is ClassicGroupState.PREPARING_REBALANCE and group.previous_state is ClassicGroupState.EMPTY:
        group.new_member_added = True
    group.add(ClassicMember.from_request(request, member_id), request.protocol_type)
    # A new member cannot send heartbeats before its join is answered, and the coordinator cannot see a dead connection.
    # The member counts as alive for this long. After that, it has to join again (KAFKA-7610).
    context.schedule(SessionTimer(group.group_id, member_id), context.settings.new_member_join_timeout_ms)
    prepare_or_complete(group, f"member {member_id} joined ({request.reason or 'no reason given'})", context)


def _rejoin(group: ClassicGroup, member: ClassicMember, request: JoinGroup, context: GroupContext) -> None:
    match group.state:
        case ClassicGroupState.PREPARING_REBALANCE:
            is_change = True
        case ClassicGroupState.STABLE:
            # A leader rejoins when something outside the group changed, such as the partitions of a topic.
            is_change = group.leader == member.member_id or member.protocols != request.protocols
        case _:
            is_change = member.protocols != request.protocols
    if not is_change:
        answer_parked(group, member, ErrorCode.REBALANCE_IN_PROGRESS, context)
        context.reply(request.reply_id, join_reply(group, member.member_id))
        return
    _update_and_park(group, member, request, context)
    prepare_or_complete(group, f"member {member.member_id} rejoins ({request.reason or 'no reason given'})", context)


def _update_and_park(group: ClassicGroup, member: ClassicMember, request: JoinGroup, context: GroupContext) -> None:
    """Updates the member and parks its join. First answers an earlier parked request, which the client has
    abandoned."""
    answer_parked(group, member, ErrorCode.REBALANCE_IN_PROGRESS, context)
    group.update(
        member,
        protocols=request.protocols,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
    )
    group.park_join(member, request.reply_id)


def _join_static(group: ClassicGroup, request: JoinGroup, context: GroupContext) -> None:
    assert request.instance_id is not None
    member_id = new_member_id(request.instance_id, context.rng)
    former_id = group.static_members.get(request.instance_id)
    if former_id is None:
        _add_member(group, request, member_id, context)
        return
    former = group.members[former_id]
    answer_parked(group, former, ErrorCode.FENCED_INSTANCE_ID, context)
    context.timers.cancel(SessionTimer(group.group_id, former_id))
    successor = dataclasses.replace(former, member_id=member_id, is_new=False)
    group.replace(former_id, successor)
    start_session(group, successor, context)
    _update_and_park(group, successor, request, context)
    context.note(
        f"replaced a static member, group={group.group_id} instance={request.instance_id} member={member_id}"
        f" former={former_id}"
    )
    _rebalance_or_store(group, successor, former, request, context)


def _rebalance_or_store(
    group: ClassicGroup, member: ClassicMember, former: ClassicMember, request: JoinGroup, context: GroupContext
) -> None:
    """Begins a rebalance for a static member that has restarted, or only stores its new id. A rebalance is needed if
    the group's protocol changes (KIP-345). It is also needed while the leader computes assignments with the former
    id."""
    reason = f"static member {request.instance_id} came back as {member.member_id}"
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        prepare(group, reason, context)
    elif group.state is ClassicGroupState.PREPARING_REBALANCE:
        maybe_complete_join(group, context)
    elif group.select_protocol() != group.protocol_name:
        prepare(group, reason, context)
    else:
        assignments = {known_member.member_id: known_member.assignment for known_member in group.members.values()}
        context.append(
            (GroupRecord(GroupMetadataKey(group.group_id), group.to_value(assignments)),),
            then=StaticMemberStored(
                group_id=group.group_id,
                generation_id=group.generation_id,
                member_id=member.member_id,
                former=former,
            ),
        )
