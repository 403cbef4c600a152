"""A rebalance of the new protocol (KIP-848) as the consumer lives it: partitions go and come one by one.

If the coordinator takes partitions away, the consumer commits (if commits are automatic), revokes them and calls the
listener. Then it reports to the coordinator that it has released them. It adds new partitions immediately. If the
membership was lost, partitions are neither committed nor revoked, but reported as lost.

All of this runs within a poll, because the listener may call the consumer. Only the automatic commit runs beside the
polls. Until it has ended, polls return no records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from klamm.consumer.group.last_commit import LastCommit
from klamm.consumer.group.rebalance_reports import Invoke, RebalanceReports
from klamm.consumer.kip848.group_link import ConsumerGroupLink
from klamm.consumer.kip848.membership import Assigned, SubscribedTo
from klamm.consumer.subscription import SubscriptionState

logger = logging.getLogger(__name__)


class ConsumerReconciler:
    """Revokes and adds the partitions of a KIP-848 member. It changes the subscription only within `advance` and
    `give_up`.

    `commit` commits before partitions are revoked, within a time limit. If it is None, nothing is committed.
    `on_progress` is called after the commit."""

    def __init__(
        self,
        subscription: SubscriptionState,
        link: ConsumerGroupLink,
        *,
        invoke: Invoke,
        commit: Callable[[], Coroutine[Any, Any, None]] | None,
        on_progress: Callable[[], None],
    ) -> None:
        self.reports = RebalanceReports(invoke)
        self._subscription = subscription
        self._link = link
        self._last_commit = LastCommit(commit, on_progress)
        self._target: Assigned | None = None
        """The partitions to own, or None if they are owned already."""
        self._owned: Assigned = {}

    @property
    def waits(self) -> bool:
        """True while the commit before a revocation is under way."""
        return self._last_commit.under_way

    async def advance(self) -> None:
        """Does the part of a rebalance that is due in this poll. While it `waits`, the next poll continues.

        Raises the listener's exception, after the rebalance has continued."""
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
        """Cancels a commit that is under way."""
        await self._last_commit.give_up()

    async def give_up(self) -> None:
        """Revokes all partitions, or reports them as lost if the membership has ended. Called on close and
        unsubscribe.
        """
        owned, lost = self._subscription.assignment, self._link.identity.generation_id < 0
        self._owned, self._target = {}, None
        await self.reports.gone(owned, lost=lost)

    async def _lose(self) -> None:
        await self.close()
        owned = self._subscription.assignment
        self._owned, self._target = {}, None
        try:
            await self.reports.gone(owned, lost=True)
        finally:
            self._subscription.assign_from_group(())
            self._link.loss_handled()

    async def _reconcile(self, target: Assigned) -> None:
        kept = {tp: topic_id for tp, topic_id in self._owned.items() if target.get(tp) == topic_id}
        revoked = frozenset(self._owned.keys() - kept.keys())
        if revoked and not self._last_commit.advance():
            return
        if self._link.is_lost:
            return  # The membership was lost during the commit. The next poll reports the partitions as lost.
        self._target = None
        try:
            await self.reports.gone(revoked, lost=False)
        finally:
            self._owned = kept
            self._subscription.assign_from_group(kept)
        # The listener may have taken longer than the coordinator waits. Then the member must not add partitions.
        if not self._link.is_lost:
            await self._apply(target)

    async def _apply(self, target: Assigned) -> None:
        added = frozenset(target.keys() - self._owned.keys())
        self._owned = dict(target)
        self._subscription.assign_from_group(target)
        self._link.reconciled(self._owned)
        await self.reports.assigned(added)
