"""The timers of the members of consumer groups: which member has which, and for how long.

    every member               a session
    of the consumer protocol   a rebalance timer, while it must revoke partitions
    of the classic protocol    a join timer from the heartbeat that tells it to join again; after that a sync timer

A member that misses a deadline is fenced.
"""

from __future__ import annotations

from typing import Any

from klamm_coordinator.groups.group_context import GroupContext
from klamm_coordinator.groups.settings import GroupSettings
from klamm_coordinator.kip848.classic_members import session_timeout_ms
from klamm_coordinator.kip848.group import ConsumerGroup
from klamm_coordinator.kip848.timers import (
    ConsumerJoinTimer,
    ConsumerRebalanceTimer,
    ConsumerSessionTimer,
    ConsumerSyncTimer,
)
from klamm_coordinator.records.consumer_group_schemas import MemberState
from klamm_coordinator.runtime.timers import Timers


class Deadlines:
    """Sets and cancels the timers of members. It has no state of its own."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings

    def renew_session(self, group: ConsumerGroup, member_id: str, context: GroupContext) -> None:
        """Starts the member's session again."""
        timeout_ms = session_timeout_ms(group.members[member_id], self._settings.consumer_session_timeout_ms)
        context.schedule(ConsumerSessionTimer(group.group_id, member_id), timeout_ms)

    def expect_join(self, group: ConsumerGroup, member_id: str, context: GroupContext) -> None:
        """Starts the time in which a member of the classic protocol must join again, unless it runs already."""
        timer = ConsumerJoinTimer(group.group_id, member_id)
        if timer not in context.timers:
            context.schedule(timer, _rebalance_timeout_ms(group, member_id))

    def joined(self, group: ConsumerGroup, member_id: str, context: GroupContext) -> None:
        """Starts the time in which a member of the classic protocol that has joined must ask for its assignment."""
        self.renew_session(group, member_id, context)
        context.timers.cancel(ConsumerJoinTimer(group.group_id, member_id))
        context.schedule(ConsumerSyncTimer(group.group_id, member_id), _rebalance_timeout_ms(group, member_id))

    def synced(self, group: ConsumerGroup, member_id: str, context: GroupContext) -> None:
        """Notes that a member of the classic protocol has asked for its assignment."""
        self.renew_session(group, member_id, context)
        context.timers.cancel(ConsumerSyncTimer(group.group_id, member_id))

    def arm(self, group: ConsumerGroup | None, group_id: str, member_id: str, context: GroupContext) -> None:
        """Sets or cancels the timers of a member whose records have changed."""
        revocation = ConsumerRebalanceTimer(group_id, member_id)
        if group is None or member_id not in group.members:
            for timer in (ConsumerSessionTimer, ConsumerRebalanceTimer, ConsumerJoinTimer, ConsumerSyncTimer):
                context.timers.cancel(timer(group_id, member_id))
            return
        if ConsumerSessionTimer(group_id, member_id) not in context.timers:
            self.renew_session(group, member_id, context)
        if _is_revoking(group, member_id):
            context.schedule(revocation, _rebalance_timeout_ms(group, member_id))
        else:
            context.timers.cancel(revocation)

    def arm_missing(self, group: ConsumerGroup, context: GroupContext) -> None:
        """Sets the timers that members lack after a load, or after a write that failed."""
        for member_id in group.members:
            has_revocation = ConsumerRebalanceTimer(group.group_id, member_id) in context.timers
            has_session = ConsumerSessionTimer(group.group_id, member_id) in context.timers
            if not has_session or _is_revoking(group, member_id) != has_revocation:
                self.arm(group, group.group_id, member_id, context)


def check_timers(group: ConsumerGroup, timers: Timers[Any]) -> None:
    """Asserts that each member has the timers that the module's docstring lists."""
    for member_id in group.members:
        assert ConsumerSessionTimer(group.group_id, member_id) in timers, (group.group_id, member_id)
        has_revocation = ConsumerRebalanceTimer(group.group_id, member_id) in timers
        assert has_revocation == _is_revoking(group, member_id), (member_id, group.current(member_id))


def _is_revoking(group: ConsumerGroup, member_id: str) -> bool:
    is_unrevoked = group.current(member_id).state is MemberState.UNREVOKED_PARTITIONS
    return is_unrevoked and not group.is_classic(member_id)


def _rebalance_timeout_ms(group: ConsumerGroup, member_id: str) -> int:
    return max(1, group.members[member_id].rebalance_timeout_ms)
