"""The classic groups of a shard, and the groups that only store offsets. Each request is passed to its group.

The stored state of a group is durable. The other state (joining members and the ends of sessions) changes with events.
`start` rebuilds it from the stored state.

Invariants (`check_invariants`): those of every group; every member that has no parked request has a session timer; the
join phase and the sync phase have a timer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from klamm.errors import ErrorCode
from klamm_coordinator.classic import rebalance, session
from klamm_coordinator.classic.follow_ups import AssignmentStored, StaticMemberStored
from klamm_coordinator.classic.group import ClassicGroup
from klamm_coordinator.classic.join import handle_join, on_static_member_stored
from klamm_coordinator.classic.messages import (
    ClassicGroupDescription,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    SyncGroup,
    SyncReply,
)
from klamm_coordinator.classic.states import ClassicGroupState
from klamm_coordinator.classic.sync import handle_sync, on_assignment_stored
from klamm_coordinator.classic.timers import JoinTimer, SessionTimer, SyncTimer
from klamm_coordinator.groups.group_context import GroupContext
from klamm_coordinator.groups.settings import GroupSettings
from klamm_coordinator.records.schemas import GroupMetadataValue
from klamm_coordinator.runtime.accounts import Accounts
from klamm_coordinator.runtime.timers import Timers
from klamm_server.runtime.byte_shares import NOBODY


class ClassicGroups:
    """All classic groups of a shard. `stored` are the groups as last stored, `others` the groups of the new protocol.
    The shard owns and changes both."""

    def __init__(
        self,
        stored: Mapping[str, GroupMetadataValue],
        others: Collection[str],
        has_offsets: Callable[[str], bool],
        settings: GroupSettings,
        accounts: Accounts,
    ) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        """The groups by group id."""
        self._stored = stored
        self._others = others
        self._has_offsets = has_offsets
        self._settings = settings
        self._accounts = accounts

    def describe(self, group_id: str) -> ClassicGroupDescription | None:
        """Returns the description of a group, or None if the group does not exist."""
        group = self.groups.get(group_id)
        return None if group is None or group.state is ClassicGroupState.DEAD else session.describe(group)

    def start(self, group_id: str, context: GroupContext) -> None:
        """Continues a group after the shard was loaded. All sessions start again, because no coordinator received
        heartbeats during the load."""
        value = self._stored.get(group_id)
        group = ClassicGroup(group_id) if value is None else ClassicGroup.restore(group_id, value)
        self.put(group)
        for member in group.members.values():
            rebalance.start_session(group, member, context)
        if value is not None and value.members and value.leader is None:
            rebalance.prepare(group, "the group was a consumer group, and has not rebalanced since", context)
        elif len(group.members) > self._settings.group_size_max:
            rebalance.prepare(group, "the group is larger than group.max.size", context)

    def adopt(self, group: ClassicGroup, context: GroupContext) -> None:
        """Adds a group that was a consumer group (KIP-848), and begins its first rebalance."""
        assert group.group_id not in self.groups, group.group_id
        self.put(group)
        for member in group.members.values():
            rebalance.start_session(group, member, context)
        rebalance.prepare(group, "the group was a consumer group", context)

    def ask_to_rejoin(self, group: ClassicGroup, context: GroupContext) -> None:
        """Answers all parked requests of the group's members, so that the members join again. Their sessions start
        again, because a session may have ended while the request was parked."""
        for member in group.members.values():
            if member.join_reply_id is not None or member.sync_reply_id is not None:
                rebalance.answer_parked(group, member, ErrorCode.REBALANCE_IN_PROGRESS, context)
                rebalance.start_session(group, member, context)

    def release(self, group_id: str, context: GroupContext) -> None:
        """Removes a group that has become a consumer group (KIP-848), with its timers."""
        group = self.groups.get(group_id)
        if group is None:
            return
        self.drop(group_id)
        for member_id in (*group.members, *group.pending_joins):
            context.timers.cancel(SessionTimer(group_id, member_id))
        context.timers.cancel(JoinTimer(group_id))
        context.timers.cancel(SyncTimer(group_id))

    def check_invariants(self, timers: Timers[Any]) -> None:
        """Asserts the invariants that the module's docstring lists."""
        for group in self.groups.values():
            group.check_invariants()
            assert group.counted_bytes == group.size_bytes, (group.counted_bytes, group.size_bytes)
            for member in group.members.values():
                timer = SessionTimer(group.group_id, member.member_id)
                assert timer in timers or member.survives_session_end(), timer
            for member_id in group.pending_joins:
                assert SessionTimer(group.group_id, member_id) in timers, member_id
            is_joining = group.state is ClassicGroupState.PREPARING_REBALANCE
            assert (JoinTimer(group.group_id) in timers) == is_joining, group.state
            is_syncing = bool(group.pending_syncs)
            assert (SyncTimer(group.group_id) in timers) == is_syncing, group.pending_syncs

    # Requests

    def join(self, request: JoinGroup, context: GroupContext) -> None:
        """Handles a JoinGroup. Creates the group if necessary."""
        self._accounts.requester = request.user
        self._join(request, context)
        self._accounts.requester = NOBODY

    def _join(self, request: JoinGroup, context: GroupContext) -> None:
        group = self.groups.get(request.group_id)
        if group is None and not request.member_id:
            group = self.create(request.group_id, context)
            if group is None:
                context.reply(request.reply_id, JoinReply(error=ErrorCode.GROUP_MAX_SIZE_REACHED))
                return
        if group is None:
            reply = JoinReply(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=request.member_id)
            context.reply(request.reply_id, reply)
            return
        handle_join(group, request, context, self._accounts)
        self.settle(group)
        self.forget_if_unused(group.group_id)

    def sync(self, request: SyncGroup, context: GroupContext) -> None:
        """Handles a SyncGroup: a member asks for its assignment, or the leader sends the assignments of all members."""
        group = self.groups.get(request.group_id)
        if group is None:
            context.reply(request.reply_id, SyncReply(error=ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            handle_sync(group, request, context, self._accounts)
            self.settle(group)

    def heartbeat(self, request: Heartbeat, context: GroupContext) -> None:
        """Handles a member's heartbeat."""
        group = self.groups.get(request.group_id)
        if group is None:
            context.reply(request.reply_id, HeartbeatReply(error=ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            session.handle_heartbeat(group, request, context)

    def leave(self, request: LeaveGroup, context: GroupContext) -> None:
        """Handles a LeaveGroup of one or more members."""
        group = self.groups.get(request.group_id)
        if group is None:
            errors = (ErrorCode.UNKNOWN_MEMBER_ID,) * len(request.leavers)
            context.reply(request.reply_id, LeaveReply(members=errors))
        else:
            session.handle_leave(group, request, context)
            self.settle(group)
            self.forget_if_unused(group.group_id)

    # Timers and the results of writes

    def on_timer(self, timer: SessionTimer | JoinTimer | SyncTimer, context: GroupContext) -> None:
        """Handles a due timer of a member's session or of a rebalance phase."""
        group = self.groups[timer.group_id]
        match timer:
            case SessionTimer(_, member_id):
                session.on_session_timer(group, member_id, context)
            case JoinTimer():
                rebalance.on_join_timer(group, context)
            case SyncTimer():
                rebalance.on_sync_timer(group, context)
        self.settle(group)
        if isinstance(timer, SessionTimer):
            self.forget_if_unused(group.group_id)

    def follow(self, then: AssignmentStored | StaticMemberStored, error: ErrorCode, context: GroupContext) -> None:
        """Carries out the follow-up of a group's write, which is stored if there is no error."""
        group = self.groups.get(then.group_id)
        if group is None:
            return
        match then:
            case AssignmentStored():
                on_assignment_stored(group, then, error, context)
            case StaticMemberStored():
                on_static_member_stored(group, then, error, context)
        self.settle(group)

    # Groups

    def create(self, group_id: str, context: GroupContext) -> ClassicGroup | None:
        """Creates a group and returns it, or returns None if the shard already has `group.count.max` groups."""
        if len(self.groups) + len(self._others) >= self._settings.group_count_max:
            return None
        group = ClassicGroup(group_id, state_timestamp_ms=context.now.wall_ms)
        self.put(group)
        return group

    def put(self, group: ClassicGroup) -> None:
        """Adds a group, or replaces the one with its id."""
        if group.group_id in self.groups:
            self.drop(group.group_id)
        self.groups[group.group_id] = group
        self.settle(group)

    def drop(self, group_id: str) -> None:
        """Removes a group, and gives its memory back."""
        group = self.groups.pop(group_id)
        self._accounts.add(group_id, -group.counted_bytes)

    def settle(self, group: ClassicGroup) -> None:
        """Counts the group's present size. Every caller that may have changed the size calls this."""
        self._accounts.add(group.group_id, group.size_bytes - group.counted_bytes)
        group.counted_bytes = group.size_bytes

    def forget_if_unused(self, group_id: str) -> None:
        """Removes a group that has no members, no stored record and no offsets."""
        group = self.groups.get(group_id)
        if (
            group is not None
            and group.is_simple
            and group.state is ClassicGroupState.EMPTY
            and group_id not in self._stored
            and not self._has_offsets(group_id)
        ):
            self.drop(group_id)
