"""A consumer's parts, put together; what both its faces do. Lives on the event loop.

A poll reads what the RecordDrain holds. When that is used up, `fill` does what a consumer owes the world (the
group, commits, positions), loads the drain from the FetchBuffer, and waits for data if there is none. The
drain may be read from another thread while nothing of this runs: that is the synchronous Consumer's poll.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from klamm.client import KlammClient
from klamm.cluster import ClusterView
from klamm.consumer.config import ConsumerConfig, Records
from klamm.consumer.fetch_buffer import FetchBuffer
from klamm.consumer.fetcher import Fetcher
from klamm.consumer.group_link import GroupLink
from klamm.consumer.membership_events import Identity
from klamm.consumer.offset_policy import OffsetPolicy
from klamm.consumer.offset_store import OUTSIDE_THE_GROUP, Offsets, OffsetStore
from klamm.consumer.position_finder import PositionFinder
from klamm.consumer.rebalancer import Invoke, Rebalancer
from klamm.consumer.record_drain import RecordDrain
from klamm.consumer.record_reader import ReaderConfig
from klamm.consumer.subscription import SubscriptionState, SubscriptionType
from klamm.errors import IllegalStateError, KlammError, WakeupError
from klamm.offset_finder import READ_COMMITTED, READ_UNCOMMITTED, OffsetFinder

logger = logging.getLogger(__name__)

T = TypeVar("T")
CommitCallback = Callable[[Offsets, Exception | None], object]
"""Called with what was to be committed and, if it was not, why."""


class ConsumerCore:
    """`invoke` calls the user's rebalance listener; `deliver` calls a function of the user's, soon."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        invoke: Invoke,
        deliver: Callable[[Callable[[], object]], None],
    ) -> None:
        self.config = config
        self.client = KlammClient(config, allow_auto_topic_creation=config.allow_auto_create_topics)
        self.subscription = SubscriptionState()
        self.woken = False
        self.closed = False
        self.commits_total = 0
        self.commits_failed_total = 0
        committed_only = config.isolation_level == "read_committed"
        self.finder = OffsetFinder(self.client, READ_COMMITTED if committed_only else READ_UNCOMMITTED)
        self.buffer = FetchBuffer(self.subscription, config.fetch_buffer_max_bytes)
        self.drain = RecordDrain(
            self.subscription,
            ReaderConfig(
                key_deserializer=config.key_deserializer,
                value_deserializer=config.value_deserializer,
                check_crcs=config.check_crcs,
                read_committed=committed_only,
            ),
        )
        policy = OffsetPolicy(self.subscription, config.auto_offset_reset)
        self.fetcher = Fetcher(self.client, config, self.subscription, self.buffer, policy, self.notify)
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._signal = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._missing_topics: asyncio.Task[None] | None = None
        self._all_topics_known = False
        self.link: GroupLink | None = None
        self.rebalancer: Rebalancer | None = None
        self._store: OffsetStore | None = None
        if config.group_id is not None:
            self.link = GroupLink(self.client, config, self.notify)
            self._store = OffsetStore(
                self.client, config.group_id, config.group_instance_id, self.link.on_commit_refused
            )
            self.rebalancer = Rebalancer(
                self.subscription, self.link, config, invoke=invoke, commit=self._commit_before_rebalance
            )
        self.positions = PositionFinder(
            self.client, config, self.subscription, policy, self._store, self.finder, self.notify
        )
        self._auto_commits = config.enable_auto_commit and self._store is not None
        self._auto_commit_at_s = self._loop.time() + config.auto_commit_interval_ms / 1000
        self.client.on_change(self._on_cluster_change)

    # --- polls

    def quiet(self) -> bool:
        """Whether a poll may read the drain without `fill` first. Callable from the polling thread."""
        if self.woken or (self._auto_commits and self._loop.time() >= self._auto_commit_at_s):
            return False
        if self.link is not None and self.subscription.auto_assigned:
            if self.link.needs_poll:
                return False
            self.link.note_poll()
        return True

    async def fill(self, deadline_s: float) -> None:
        """Returns when the drain has something to read, or at `deadline_s` on the loop's clock.

        Raises WakeupError and whatever the user must hear of."""
        while True:
            self._signal.clear()
            self.raise_if_woken()
            await self._maintain()
            self._reload()
            if self.drain.reading() or not await self._wait_until(deadline_s):
                return

    async def wait_for(self, condition: Callable[[], T | None], timeout_ms: int, what: str) -> T:
        """Waits until `condition()` is not None, while positions are looked up.

        Raises as `fill`, and TimeoutError."""
        deadline_s = self._loop.time() + timeout_ms / 1000
        while True:
            self._signal.clear()
            self.raise_if_woken()
            result = condition()
            if result is not None:
                return result
            self.positions.kick()
            self._raise_failures()
            if not await self._wait_until(deadline_s):
                raise TimeoutError(f"{what} took longer than {timeout_ms} ms")

    async def interruptible(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Awaits it; `wakeup` cancels it and raises WakeupError."""
        task = self._loop.create_task(coroutine)
        try:
            while not task.done():
                self._signal.clear()
                self.raise_if_woken()
                signalled = self._loop.create_task(self._signal.wait())
                await asyncio.wait((task, signalled), return_when=asyncio.FIRST_COMPLETED)
                signalled.cancel()
        finally:
            task.cancel()
        return await task

    def notify(self) -> None:
        """Lets what waits look again."""
        self._signal.set()

    def raise_if_woken(self) -> None:
        if self.woken:
            self.woken = False
            raise WakeupError("wakeup was called")

    def require_open(self) -> None:
        if self.closed:
            raise IllegalStateError("the consumer is closed")

    def positions_changed(self) -> None:
        """After seek, assign, resume and the like."""
        self.positions.kick()
        self.fetcher.pump()
        self._watch_missing_topics()

    def intercept(self, records: Records) -> Records:
        """What the interceptors make of a poll's result."""
        for interceptor in self.config.interceptor_classes:
            try:
                records = interceptor.on_consume(records)
            except Exception:
                logger.exception("interceptor %r failed in on_consume", interceptor)
        return records

    async def _wait_until(self, deadline_s: float) -> bool:
        """Whether there was a signal before the deadline."""
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._signal.wait()
        except TimeoutError:
            return False
        return True

    def _reload(self) -> None:
        self.buffer.release(self.drain.finished())
        if not self.drain.reading():
            self.drain.load(self.buffer.take())
        self.fetcher.pump(read=True)

    async def _maintain(self) -> None:
        self._raise_failures()
        if self.subscription.auto_assigned:
            await self._know_topics()
            if self.subscription.topics or self.subscription.assignment:
                assert self.rebalancer is not None, "a subscription without a group"
                await self.rebalancer.advance()
        self._auto_commit()
        self.positions.kick()
        self._watch_missing_topics()
        self._raise_failures()

    def _raise_failures(self) -> None:
        failure = self.fetcher.take_failure() or self.positions.take_failure()
        if failure is None and self.link is not None and self.subscription.auto_assigned:
            failure = self.link.take_failure()
        if failure is not None:
            raise failure

    # --- topics

    async def _know_topics(self) -> None:
        """A pattern needs to know every topic once; `_on_cluster_change` matches again from then on."""
        if self.subscription.type is not SubscriptionType.PATTERN or self._all_topics_known:
            return
        await self.client.retrying(
            lambda: self.client.refresh_metadata(None), timeout_ms=self.config.default_api_timeout_ms
        )
        self._all_topics_known = True
        self._match_pattern(self.client.cluster)

    def pattern_changed(self) -> None:
        """A pattern was subscribed to."""
        self._all_topics_known = False

    def _match_pattern(self, cluster: ClusterView) -> None:
        hidden = self.config.exclude_internal_topics
        names = (topic.name for topic in cluster.topics.values() if not (hidden and topic.internal))
        if self.subscription.match_topics(names) and self.link is not None:
            self.link.request_rejoin("the topics that match the pattern changed")

    def _on_cluster_change(self, _: ClusterView, cluster: ClusterView) -> None:
        if self.subscription.type is SubscriptionType.PATTERN and self._all_topics_known:
            self._match_pattern(cluster)
        self.fetcher.pump()
        self.notify()

    def _watch_missing_topics(self) -> None:
        """Subscribed topics that do not exist yet are asked for until they do."""
        if self._missing_topics is None and self.subscription.topics - self.client.cluster.topics.keys():
            self._missing_topics = self._spawn(self._ask_for_missing_topics(), "missing-topics")

    async def _ask_for_missing_topics(self) -> None:
        attempt = 0
        while missing := self.subscription.topics - self.client.cluster.topics.keys():
            try:
                await self.client.refresh_metadata(missing)
            except KlammError as error:
                logger.info("topics %s: %s", ", ".join(sorted(missing)), error)
            attempt += 1
            await asyncio.sleep(self.client.backoff.delay_ms(attempt, self.client.rng) / 1000)
        self._missing_topics = None

    # --- commits

    def commit_identity(self) -> Identity:
        """Who commits: the member, or nobody of the group under `assign`."""
        if self.link is None or not self.subscription.auto_assigned:
            return OUTSIDE_THE_GROUP
        return self.link.commit_identity()

    def store(self) -> OffsetStore:
        """Raises IllegalStateError without a group."""
        if self._store is None:
            raise IllegalStateError("committed offsets need a group.id")
        return self._store

    async def commit(self, offsets: Offsets, timeout_ms: int) -> None:
        """Raises as `OffsetStore.commit`."""
        store = self.store()
        if not offsets:
            return
        try:
            await store.commit(offsets, self.commit_identity, timeout_ms=timeout_ms)
        except KlammError:
            self.commits_failed_total += 1
            raise
        self._committed(offsets)

    def commit_async(self, offsets: Offsets, callback: CommitCallback | None) -> None:
        """One attempt, beside everything else; `callback` hears of the outcome."""
        self._spawn(self._commit_once(self.store(), offsets, callback), "commit")

    async def _commit_once(self, store: OffsetStore, offsets: Offsets, callback: CommitCallback | None) -> None:
        failure: KlammError | None = None
        try:
            if offsets:
                await store.commit_once(offsets, self.commit_identity, timeout_ms=self.config.default_api_timeout_ms)
                self._committed(offsets)
        except KlammError as error:
            self.commits_failed_total += 1
            failure = error
        if callback is not None:
            call = callback
            self._deliver(lambda: call(offsets, failure))

    def _committed(self, offsets: Offsets) -> None:
        self.commits_total += 1
        for interceptor in self.config.interceptor_classes:
            try:
                interceptor.on_commit(offsets)
            except Exception:
                logger.exception("interceptor %r failed in on_commit", interceptor)

    def _auto_commit(self) -> None:
        now_s = self._loop.time()
        if not self._auto_commits or now_s < self._auto_commit_at_s:
            return
        self._auto_commit_at_s = now_s + self.config.auto_commit_interval_ms / 1000
        offsets = self.subscription.positions()
        if offsets:
            self.commit_async(offsets, self._on_auto_committed)

    def _on_auto_committed(self, offsets: Offsets, failure: Exception | None) -> None:
        if failure is not None:
            logger.warning("group=%s auto commit failed: %s", self.config.group_id, failure)
            if getattr(failure, "retriable", False):
                self._auto_commit_at_s = self._loop.time() + self.config.retry_backoff_ms / 1000

    async def _commit_before_rebalance(self) -> None:
        if self._auto_commits:
            await self._commit_at_last(self.config.request_timeout_ms)

    async def _commit_at_last(self, timeout_ms: int) -> None:
        """An auto commit that nobody can repeat: what fails is logged, and read again by whoever is next."""
        try:
            await self.commit(self.subscription.positions(), timeout_ms)
        except KlammError as error:
            logger.warning("group=%s commit failed: %s", self.config.group_id, error)

    # --- the end

    async def leave_group(self, reason: str, *, static: bool, timeout_ms: int) -> None:
        """Commits if it is automatic, tells the listener, leaves. Raises what the listener raised, at the end."""
        if self.link is None or self.rebalancer is None or not self.subscription.auto_assigned:
            return
        deadline_s = self._loop.time() + timeout_ms / 1000
        if self._auto_commits and self.link.identity.generation_id >= 0:
            await self._commit_at_last(timeout_ms)
        try:
            await self.rebalancer.give_up()
        finally:
            left_ms = max(1, int((deadline_s - self._loop.time()) * 1000))
            await self.link.leave(reason, static=static, timeout_ms=left_ms)

    async def close(self, timeout_ms: int, *, leave_static: bool) -> None:
        """Ends everything within about `timeout_ms`."""
        if self.closed:
            return
        self.closed = True
        self.notify()
        try:
            if self.subscription.auto_assigned:
                await self.leave_group("the consumer is being closed", static=leave_static, timeout_ms=timeout_ms)
            elif self._auto_commits:
                await self._commit_at_last(timeout_ms)
        finally:
            await self._stop(timeout_ms)

    async def _stop(self, timeout_ms: int) -> None:
        commits = [task for task in self._tasks if task.get_name() == "klamm-consumer-commit"]
        if commits:
            await asyncio.wait(commits, timeout=timeout_ms / 1000)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.link is not None:
            await self.link.close()
        await self.fetcher.close()
        await self.positions.close()
        self.subscription.unsubscribe()
        await self.client.close()

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine, name=f"klamm-consumer-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def metrics(self) -> dict[str, float]:
        """Kafka's metric names without the group; totals since the consumer was made."""
        fetch = self.fetcher.metrics
        lags = [lag for tp in self.subscription.assignment if (lag := self.lag_of(tp)) is not None]
        link = self.link
        return {
            "records-consumed-total": self.drain.records_total,
            "bytes-consumed-total": self.drain.bytes_total,
            "records-lag-max": max(lags, default=0),
            "fetch-total": fetch.fetches,
            "fetch-size-avg": fetch.fetched_bytes / max(1, fetch.fetches),
            "fetch-latency-avg": fetch.latency_ms_total / max(1, fetch.fetches),
            "fetch-failed-total": fetch.failures,
            "fetch-buffered-bytes": self.buffer.buffered_bytes,
            "assigned-partitions": len(self.subscription.assignment),
            "commit-total": self.commits_total,
            "commit-failed-total": self.commits_failed_total,
            "heartbeat-total": 0 if link is None else link.heartbeats_total,
            "rebalance-total": 0 if link is None else link.rebalances_total,
        }

    def lag_of(self, tp: Any) -> int | None:
        """Records between the position and the end that this consumer may read; None: not known yet."""
        state = self.subscription.require(tp)
        committed_only = self.config.isolation_level == "read_committed"
        end = state.last_stable_offset if committed_only else state.high_watermark
        if end is None or state.position < 0:
            return None
        return max(0, end - state.position)
