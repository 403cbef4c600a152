"""The commits of one consumer: those of the user, the automatic ones, and the last ones before partitions are revoked.

Automatic commits (enable.auto.commit) are sent from within polls, never between them. They store the positions after
the records of earlier polls, which the user has processed before the next poll."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from klamm.client_task import client_task
from klamm.consumer.classic.group_link import ClassicGroupLink
from klamm.consumer.config import ConsumerConfig
from klamm.consumer.group.identity import Identity
from klamm.consumer.kip848.group_link import ConsumerGroupLink
from klamm.consumer.offsets.offset_store import COMMIT_FAILED, OUTSIDE_THE_GROUP, Offsets, OffsetStore
from klamm.consumer.subscription import SubscriptionState
from klamm.errors import CommitFailedError, IllegalStateError, KlammError
from klamm.ordered_set import OrderedSet

logger = logging.getLogger(__name__)

CommitCallback = Callable[[Offsets, Exception | None], object]
"""A callback with the offsets of a commit, and the error or None."""


class Committer:
    """Sends the commits of one consumer. `deliver` schedules the call of a user's function. Without a group, there is
    no store and no link."""

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        link: ClassicGroupLink | ConsumerGroupLink | None,
        store: OffsetStore | None,
        deliver: Callable[[Callable[[], object]], None],
    ) -> None:
        self.commits_total = 0
        self.failures_total = 0
        self.automatic = config.enable_auto_commit and store is not None
        self._config = config
        self._subscription = subscription
        self._link = link
        self._store = store
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._due_at_s = self._loop.time() + config.auto_commit_interval_ms / 1000
        self._tasks: OrderedSet[asyncio.Task[None]] = OrderedSet()

    @property
    def due(self) -> bool:
        """True while the next poll has to commit. A commit during a rebalance would be refused, so it waits for the
        end."""
        if not self.automatic or self._loop.time() < self._due_at_s:
            return False
        return self._link is None or not self._subscription.auto_assigned or not self._link.rebalancing

    def store(self) -> OffsetStore:
        """Returns the store. Raises IllegalStateError without a group."""
        if self._store is None:
            raise IllegalStateError("committed offsets need a group.id")
        return self._store

    async def commit(self, offsets: Offsets, timeout_ms: int) -> None:
        """Commits and waits for the result. Raises the errors of `OffsetStore.commit`."""
        await self._commit(offsets, self._identity, timeout_ms)

    def commit_async(self, offsets: Offsets, callback: CommitCallback | None) -> None:
        """Tries to commit once, in the background. `callback` gets the outcome."""
        self._spawn(self._commit_with_callback(self.store(), offsets, callback))

    def commit_if_due(self) -> None:
        """Starts the automatic commit of a poll, if it is due."""
        if not self.due:
            return
        self._due_at_s = self._loop.time() + self._config.auto_commit_interval_ms / 1000
        self._spawn(self._commit_automatically(self.store(), self._subscription.positions()))

    async def commit_before_revocation(self, timeout_ms: int) -> None:
        """Commits before partitions are revoked, if commits are automatic. A failure is logged only, and the next owner
        then reads those records again."""
        positions = self._subscription.positions()
        if not self.automatic or not positions:  # Before the first join, there are no positions and no member.
            return
        try:
            async with asyncio.timeout(timeout_ms / 1000):  # Earlier commits may use up the time.
                identity = self._last_identity()
                await self._commit(positions, lambda: identity, timeout_ms, skip_gone=True)
        except (KlammError, TimeoutError) as error:
            logger.warning("group=%s commit failed: %s", self._config.group_id, str(error) or f"after {timeout_ms} ms")

    async def close(self, timeout_ms: int) -> None:
        """Waits up to `timeout_ms` for commits under way, then cancels them."""
        tasks = list(self._tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_ms / 1000)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _identity(self) -> Identity:
        """Returns the identity of the member, or an identity outside the group after `assign`."""
        if self._link is None or not self._subscription.auto_assigned:
            return OUTSIDE_THE_GROUP
        return self._link.commit_identity()

    def _last_identity(self) -> Identity:
        """Returns the identity of the member, even during a rebalance. Until the new generation begins, the coordinator
        accepts commits of the old one."""
        if self._link is None or not self._subscription.auto_assigned:
            return OUTSIDE_THE_GROUP
        if self._link.identity.generation_id < 0:
            raise CommitFailedError(COMMIT_FAILED)
        return self._link.identity

    async def _commit(
        self, offsets: Offsets, identify: Callable[[], Identity], timeout_ms: int, *, skip_gone: bool = False
    ) -> None:
        store = self.store()
        if not offsets:
            return
        try:
            await store.commit(offsets, identify, timeout_ms=timeout_ms, skip_gone=skip_gone)
        except KlammError:
            self.failures_total += 1
            raise
        self._committed(offsets)

    async def _commit_with_callback(
        self, store: OffsetStore, offsets: Offsets, callback: CommitCallback | None
    ) -> None:
        failure = await self._attempt(store, offsets)
        if callback is not None:
            call = callback
            self._deliver(lambda: call(offsets, failure))

    async def _commit_automatically(self, store: OffsetStore, offsets: Offsets) -> None:
        failure = await self._attempt(store, offsets)
        if failure is not None:
            logger.warning("group=%s auto commit failed: %s", self._config.group_id, failure)
            if failure.retriable:
                self._due_at_s = self._loop.time() + self._config.retry_backoff_ms / 1000

    async def _attempt(self, store: OffsetStore, offsets: Offsets) -> KlammError | None:
        if not offsets:
            return None
        try:
            # Commit as the member that owned the partitions, not as the member after the rebalance.
            identity = self._identity()
            await store.commit_once(offsets, lambda: identity, timeout_ms=self._config.default_api_timeout_ms)
        except KlammError as error:
            self.failures_total += 1
            return error
        self._committed(offsets)
        return None

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = client_task(coroutine, name="klamm-commit")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _committed(self, offsets: Offsets) -> None:
        self.commits_total += 1
        for interceptor in self._config.interceptor_classes:
            try:
                interceptor.on_commit(offsets)
            except Exception:
                logger.exception("interceptor %r failed in on_commit", interceptor)
