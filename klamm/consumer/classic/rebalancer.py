"""The consumer's side of a rebalance: it revokes and adds partitions, and calls the user's rebalance listener.

    eager         the member revokes all partitions before it joins, and then owns what it is assigned
    cooperative   before it joins, the member revokes only topics that it no longer subscribes to; partitions that the
                  assignment lacks are revoked when it arrives, and the member joins again so that other members can
                  get them (KIP-429)

If the membership was lost, partitions are neither committed nor revoked, but reported as lost. All of this runs within
a poll, because the listener may call the consumer. The automatic commit before a revocation is the exception: it may
take longer than a poll, so it runs as a task of its own. Until it has ended, polls return no records, because it
commits the positions where the next owner begins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from klamm.consumer.assignors import RebalanceProtocol, common_protocol
from klamm.consumer.assignors.consumer_protocol import Subscription, decode_assignment, encode_subscription
from klamm.consumer.classic.group_link import ClassicGroupLink
from klamm.consumer.classic.membership_events import PrepareJoin, TakeAssignment
from klamm.consumer.config import ConsumerConfig
from klamm.consumer.group.identity import NO_GENERATION
from klamm.consumer.group.last_commit import LastCommit
from klamm.consumer.group.rebalance_reports import Invoke, Partitions, RebalanceReports
from klamm.consumer.subscription import SubscriptionState

logger = logging.getLogger(__name__)


class _Assignment(NamedTuple):
    """An assignment that the group gave to this member."""

    generation_id: int
    partitions: Partitions


_NOTHING = _Assignment(NO_GENERATION, frozenset())


class ClassicRebalancer:
    """Revokes and adds a classic member's partitions. It changes the subscription only within `advance` and `give_up`.

    `commit` commits before partitions are revoked, within a time limit. If it is None, nothing is committed.
    `on_progress` is called after the commit."""

    def __init__(
        self,
        subscription: SubscriptionState,
        link: ClassicGroupLink,
        config: ConsumerConfig,
        *,
        invoke: Invoke,
        commit: Callable[[], Coroutine[Any, Any, None]] | None,
        on_progress: Callable[[], None],
    ) -> None:
        self.reports = RebalanceReports(invoke)
        self._subscription = subscription
        self._link = link
        self._config = config
        self._last_commit = LastCommit(commit, on_progress)
        self._arrived: _Assignment | None = None
        """The assignment that is applied after the commit of the revoked partitions (`waits`)."""
        self._protocol = common_protocol(config.partition_assignment_strategy)
        self._last = _NOTHING
        """The last applied assignment, for the sticky assignors."""

    @property
    def waits(self) -> bool:
        """True while the commit before a revocation is under way."""
        return self._last_commit.under_way

    async def advance(self) -> None:
        """Does the part of a rebalance that is due in this poll. While it `waits`, the next poll continues.

        Raises the listener's exception, after the rebalance has continued."""
        assignment = self._link.take_assignment()
        if assignment is not None:
            self._arrived = self._receive(assignment)
        if self._arrived is not None and not await self._apply(self._arrived):
            self._link.note_poll()
            return
        prepare = self._link.polled()
        if prepare is not None:
            await self._prepare(prepare)

    async def close(self) -> None:
        """Cancels a commit that is under way."""
        await self._last_commit.give_up()

    async def give_up(self) -> None:
        """Revokes all partitions, or reports them as lost if the membership has ended. Called on close and
        unsubscribe.
        """
        owned = self._subscription.assignment
        lost = self._link.identity.generation_id < 0
        self._arrived = None
        try:
            await self.reports.gone(owned, lost=lost)
        finally:
            self._last = _NOTHING

    async def _prepare(self, prepare: PrepareJoin) -> None:
        if prepare.lost:
            await self.close()
        elif not self._last_commit.advance():
            return
        try:
            await self._give_up_before_join(lost=prepare.lost)
        finally:
            self._link.prepared(self._protocols())

    async def _give_up_before_join(self, *, lost: bool) -> None:
        owned = self._subscription.assignment
        going = owned
        if not lost and self._protocol is RebalanceProtocol.COOPERATIVE:
            going = frozenset(tp for tp in owned if tp.topic not in self._subscription.topics)
        try:
            await self.reports.gone(going, lost=lost)
        finally:
            self._subscription.assign_from_group(owned - going)

    def _protocols(self) -> tuple[tuple[str, bytes], ...]:
        owned = tuple(sorted(self._subscription.assignment))
        generation_id, last = self._last
        return tuple(
            (
                assignor.name,
                encode_subscription(
                    Subscription(
                        topics=tuple(self._subscription.topics),
                        user_data=assignor.user_data(last, generation_id),
                        owned=owned,
                        generation_id=generation_id if owned else NO_GENERATION,
                        rack_id=self._config.client_rack or None,
                    )
                ),
            )
            for assignor in self._config.partition_assignment_strategy
        )

    def _receive(self, effect: TakeAssignment) -> _Assignment:
        assigned = frozenset(decode_assignment(effect.assignment).partitions)
        unwanted = {tp.topic for tp in assigned} - self._subscription.topics
        if unwanted:
            self._link.request_rejoin(f"no longer subscribed to {', '.join(sorted(unwanted))}")
            assigned = frozenset(tp for tp in assigned if tp.topic not in unwanted)
        logger.info(
            "group=%s generation=%s assignor=%s assigned=%s",
            *(self._link.group_id, effect.generation_id, effect.protocol_name),
            ",".join(map(str, sorted(assigned))) or "nothing",
        )
        return _Assignment(effect.generation_id, assigned)

    async def _apply(self, arrived: _Assignment) -> bool:
        """Applies an assignment. Returns False while the commit before a revocation is under way. The eager protocol
        owns no partitions here, so it revokes none."""
        owned = self._subscription.assignment
        revoked = owned - arrived.partitions
        if arrived.generation_id != self._link.identity.generation_id:
            self._arrived = None  # The membership ended while the commit was under way.
            return True
        if revoked and not self._last_commit.advance():
            return False
        self._arrived = None
        try:
            if revoked:
                self._link.request_rejoin(f"gave up {', '.join(map(str, sorted(revoked)))}")
                await self.reports.gone(revoked, lost=False)
        finally:
            self._last = arrived
            self._subscription.assign_from_group(arrived.partitions)
        await self.reports.assigned(arrived.partitions - owned)
        return True
