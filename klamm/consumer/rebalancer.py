"""A rebalance as the consumer lives it: what is given up, what is taken, and what the user hears of it.

    eager         before joining everything is revoked; the assignment is taken as it comes
    cooperative   nothing is revoked before joining but topics no longer subscribed to; what the assignment lacks is
                  revoked when it comes, and the member joins again so that others can have it (KIP-429)

When the membership was lost, partitions are neither committed nor revoked but reported as lost. Everything
here happens within a poll: the listener may call the consumer.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from klamm.consumer.assignors import RebalanceProtocol, common_protocol
from klamm.consumer.config import ConsumerConfig
from klamm.consumer.consumer_protocol import Subscription, decode_assignment, encode_subscription
from klamm.consumer.group_link import GroupLink
from klamm.consumer.membership_events import NO_GENERATION, PrepareJoin, TakeAssignment
from klamm.consumer.subscription import SubscriptionState
from klamm.model import TopicPartition

logger = logging.getLogger(__name__)

Partitions = frozenset[TopicPartition]
Invoke = Callable[[Callable[[Partitions], object], Partitions], Awaitable[None]]
"""Calls the user's listener where user code belongs, and awaits what it returns if that can be awaited."""


class ConsumerRebalanceListener(Protocol):
    """Hears of partitions that come and go. The methods may be coroutine functions with an AsyncConsumer.

    It may also have `on_partitions_lost(partitions)`, for partitions that are gone already; without it those go
    to on_partitions_revoked. What the methods raise is raised from the poll that called them."""

    def on_partitions_revoked(self, partitions: Partitions) -> object:
        """About to be given up, still owned: the last chance to commit."""

    def on_partitions_assigned(self, partitions: Partitions) -> object:
        """Newly assigned; may be empty."""


class Rebalancer:
    """Changes the group's part of the subscription, and only within `advance` and `give_up`."""

    def __init__(
        self,
        subscription: SubscriptionState,
        link: GroupLink,
        config: ConsumerConfig,
        *,
        invoke: Invoke,
        commit: Callable[[], Awaitable[None]],
    ) -> None:
        self.listener: ConsumerRebalanceListener | None = None
        self._subscription = subscription
        self._link = link
        self._config = config
        self._invoke = invoke
        self._commit = commit
        self._protocol = common_protocol(config.partition_assignment_strategy)
        self._last: tuple[int, Partitions] = (NO_GENERATION, frozenset())
        """Generation and partitions of the last assignment, for the sticky assignors."""

    async def advance(self) -> None:
        """What a poll owes the group. Raises what the listener raised, after the rebalance has gone on."""
        assignment = self._link.take_assignment()
        if assignment is not None:
            await self._take(assignment)
        prepare = self._link.polled()
        if prepare is not None:
            try:
                await self._give_up_before_join(prepare)
            finally:
                self._link.prepared(self._protocols())

    async def give_up(self) -> None:
        """On close and unsubscribe: everything is revoked, or lost if the membership is."""
        owned = self._subscription.assignment
        lost = self._link.identity.generation_id < 0
        try:
            await self._call_gone(owned, lost=lost)
        finally:
            self._last = NO_GENERATION, frozenset()

    async def _give_up_before_join(self, prepare: PrepareJoin) -> None:
        owned = self._subscription.assignment
        if prepare.lost:
            going = owned
        else:
            await self._commit()
            eager = self._protocol is RebalanceProtocol.EAGER
            going = owned if eager else frozenset(tp for tp in owned if tp.topic not in self._subscription.topics)
        try:
            await self._call_gone(going, lost=prepare.lost)
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

    async def _take(self, effect: TakeAssignment) -> None:
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
        owned = self._subscription.assignment
        try:
            await self._revoke(owned - assigned)
        finally:
            self._last = effect.generation_id, assigned
            self._subscription.assign_from_group(assigned)
        await self._call("on_partitions_assigned", assigned - owned)

    async def _revoke(self, revoked: Partitions) -> None:
        """After a cooperative assignment; the eager protocol has nothing left to revoke by then."""
        if not revoked:
            return
        self._link.request_rejoin(f"gave up {', '.join(map(str, sorted(revoked)))}")
        await self._commit()
        await self._call_gone(revoked, lost=False)

    async def _call_gone(self, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        going = frozenset(partitions)
        if not going:
            return
        if lost and hasattr(self.listener, "on_partitions_lost"):
            await self._call("on_partitions_lost", going)
        else:
            await self._call("on_partitions_revoked", going)

    async def _call(self, name: str, partitions: Partitions) -> None:
        method = getattr(self.listener, name, None)
        if method is not None:
            await self._invoke(method, partitions)
