"""A rebalance of the new protocol (KIP-848) as the consumer lives it: partitions go and come one by one.

What the coordinator takes away is committed (if commits are automatic), revoked with a word to the user, and then
reported as given up; what it gives is taken at once. When the membership was lost, partitions are neither committed nor
revoked but reported as lost. Everything here happens within a poll, as the listener may call the consumer; only the
automatic commit runs beside the polls, which until it is over return nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from klamm.consumer.consumer_group_link import ConsumerGroupLink
from klamm.consumer.consumer_membership import Assigned, SubscribedTo
from klamm.consumer.rebalancer import ConsumerRebalanceListener, Invoke
from klamm.consumer.subscription import SubscriptionState
from klamm.model import TopicPartition

logger = logging.getLogger(__name__)


class Reconciler:
    """Changes the group's part of the subscription, and only within `advance` and `give_up`.

    `commit` commits before partitions are given up, bounded in time; None: nothing is committed. `on_progress` is
    called when it is over."""

    def __init__(
        self,
        subscription: SubscriptionState,
        link: ConsumerGroupLink,
        *,
        invoke: Invoke,
        commit: Callable[[], Coroutine[Any, Any, None]] | None,
        on_progress: Callable[[], None],
    ) -> None:
        self.listener: ConsumerRebalanceListener | None = None
        self._subscription = subscription
        self._link = link
        self._invoke = invoke
        self._commit = commit
        self._on_progress = on_progress
        self._committing: asyncio.Task[None] | None = None
        self._target: Assigned | None = None
        """What is to be owned; None: what is."""
        self._owned: Assigned = {}

    @property
    def waits(self) -> bool:
        """Whether a commit is under way before partitions are given up."""
        return self._committing is not None

    async def advance(self) -> None:
        """What a poll owes the group; while it `waits`, the next one goes on.

        Raises what the listener raised, after the rebalance has gone on."""
        if self._link.is_lost:
            await self._lose()
        self._link.polled(SubscribedTo(self._subscription.named_topics, self._subscription.server_pattern))
        assignment = self._link.take_assignment()
        if assignment is not None:
            self._target = assignment
            logger.info(
                "group=%s epoch=%s assigned=%s",
                *(self._link.group_id, self._link.identity.generation_id),
                ",".join(map(str, sorted(assignment))) or "nothing",
            )
        if self._target is not None:
            await self._reconcile(self._target)

    async def close(self) -> None:
        """Gives a commit under way up."""
        committing, self._committing = self._committing, None
        if committing is not None:
            committing.cancel()
            await asyncio.gather(committing, return_exceptions=True)

    async def give_up(self) -> None:
        """On close and unsubscribe: everything is revoked, or lost if the membership is."""
        owned, lost = self._subscription.assignment, self._link.identity.generation_id < 0
        self._owned, self._target = {}, None
        await self._call_gone(owned, lost=lost)

    async def _lose(self) -> None:
        await self.close()
        owned = self._subscription.assignment
        self._owned, self._target = {}, None
        try:
            await self._call_gone(owned, lost=True)
        finally:
            self._subscription.assign_from_group(())
            self._link.loss_handled()

    async def _reconcile(self, target: Assigned) -> None:
        kept = {tp: topic_id for tp, topic_id in self._owned.items() if target.get(tp) == topic_id}
        revoked = frozenset(self._owned.keys() - kept.keys())
        if revoked and not self._commit_over():
            return
        if self._link.is_lost:
            return  # while the commit was under way: the next poll says so
        self._target = None
        try:
            await self._call_gone(revoked, lost=False)
        finally:
            self._owned = kept
            self._subscription.assign_from_group(kept)
        # A listener may have taken longer than the coordinator waits; then nothing may be taken any more.
        if not self._link.is_lost:
            await self._take(target)

    async def _take(self, target: Assigned) -> None:
        added = frozenset(target.keys() - self._owned.keys())
        self._owned = dict(target)
        self._subscription.assign_from_group(target)
        self._link.reconciled(self._owned)
        if self.listener is not None:
            await self._call("on_partitions_assigned", added)

    def _commit_over(self) -> bool:
        """Begins the commit before partitions are given up; True once, when it is over."""
        if self._commit is None:
            return True
        if self._committing is None:
            self._committing = asyncio.get_running_loop().create_task(self._commit(), name="klamm-last-commit")
            self._committing.add_done_callback(lambda _: self._on_progress())
        if not self._committing.done():
            return False
        committing, self._committing = self._committing, None
        committing.result()
        return True

    async def _call_gone(self, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        going = frozenset(partitions)
        if not going:
            return
        if lost and hasattr(self.listener, "on_partitions_lost"):
            await self._call("on_partitions_lost", going)
        else:
            await self._call("on_partitions_revoked", going)

    async def _call(self, name: str, partitions: frozenset[TopicPartition]) -> None:
        method = getattr(self.listener, name, None)
        if method is not None:
            await self._invoke(method, partitions)
