"""The common part of the synchronous and the asynchronous consumer. It runs on the event loop.

A poll reads the records of the RecordDrain. When they are used up, `fill` does the work for the group, commits and
positions. Then it loads the drain from the FetchBuffer, and waits for data if there is none. Another thread may read
the drain while none of this runs. The synchronous Consumer polls this way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from klamm.cluster.client import KlammClient
from klamm.cluster.epoch_finder import EpochFinder
from klamm.cluster.metadata import ClusterView
from klamm.cluster.offset_finder import READ_COMMITTED, READ_UNCOMMITTED, OffsetFinder
from klamm.consumer.classic.group_link import ClassicGroupLink
from klamm.consumer.classic.rebalancer import ClassicRebalancer
from klamm.consumer.config import ConsumerConfig, Records
from klamm.consumer.core.committer import Committer
from klamm.consumer.core.topic_watch import TopicWatch
from klamm.consumer.core.unfinished_records import UnfinishedRecords
from klamm.consumer.fetch.column_request import ColumnRequest
from klamm.consumer.fetch.fetch_buffer import FetchBuffer
from klamm.consumer.fetch.fetched_data_reader import ReaderConfig
from klamm.consumer.fetch.fetcher import Fetcher
from klamm.consumer.fetch.record_drain import RecordDrain
from klamm.consumer.group.rebalance_reports import Invoke
from klamm.consumer.kip848.group_link import ConsumerGroupLink
from klamm.consumer.kip848.reconciler import ConsumerReconciler
from klamm.consumer.offset_policy import OffsetPolicy
from klamm.consumer.offsets.offset_store import OUTSIDE_THE_GROUP, OffsetStore
from klamm.consumer.offsets.position_finder import PositionFinder
from klamm.consumer.offsets.position_resets import PositionResets
from klamm.consumer.subscription import SubscriptionState, SubscriptionType
from klamm.errors import ClosedError, ConfigError, IllegalStateError, WakeupError
from klamm.model import NO_LEADER_EPOCH, TopicPartition
from klamm.offsets import ConsumerGroupMetadata

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ConsumerCore:
    """The parts of one consumer. `invoke` calls the user's rebalance listener. `deliver` schedules the call of a user's
    function."""

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
        self.unfinished = UnfinishedRecords(self.subscription)
        self.woken = False
        self.closed = False
        committed_only = config.isolation_level == "read_committed"
        self.finder = OffsetFinder(self.client, READ_COMMITTED if committed_only else READ_UNCOMMITTED)
        self.buffer = FetchBuffer(self.subscription, config.fetch_buffer_max_bytes)
        self.drain = RecordDrain(
            self.subscription,
            ReaderConfig(
                key_deserializer=config.key_deserializer,
                value_deserializer=config.value_deserializer,
                check_crcs=config.check_crcs,
                max_decompressed_bytes=config.max_decompressed_batch_bytes,
                read_committed=committed_only,
            ),
        )
        policy = OffsetPolicy(self.subscription, config.auto_offset_reset)
        self.fetcher = Fetcher(self.client, config, self.subscription, self.buffer, policy, self.notify)
        self.resets = PositionResets(config, invoke)
        self._loop = asyncio.get_running_loop()
        self._signal = asyncio.Event()
        self.link: ClassicGroupLink | ConsumerGroupLink | None = None
        self.rebalancer: ClassicRebalancer | ConsumerReconciler | None = None
        store: OffsetStore | None = None
        if config.group_id is not None:
            kind = ConsumerGroupLink if config.group_protocol == "consumer" else ClassicGroupLink
            self.link = kind(self.client, config, self.notify)
            store = OffsetStore(self.client, config.group_id, config.group_instance_id, self.link.on_commit_refused)
        self.committer = Committer(config, self.subscription, self.link, store, deliver)
        self.rebalancer = self._make_rebalancer(invoke)
        self.positions = PositionFinder(
            self.client,
            config,
            self.subscription,
            policy,
            store,
            self.finder,
            EpochFinder(self.client),
            self.resets,
            self.notify,
        )
        self.topics = TopicWatch(self.client, config, self.subscription, self._on_match_changed, self.notify)
        self.client.on_change(self._on_cluster_change)
        self.client.on_refusal(self.notify)

    def _make_rebalancer(self, invoke: Invoke) -> ClassicRebalancer | ConsumerReconciler | None:
        commit = self._commit_before_rebalance if self.committer.automatic else None
        match self.link:
            case None:
                return None
            case ConsumerGroupLink() as link:
                return ConsumerReconciler(
                    self.subscription, link, invoke=invoke, commit=commit, on_progress=self.notify
                )
            case link:
                return ClassicRebalancer(
                    self.subscription, link, self.config, invoke=invoke, commit=commit, on_progress=self.notify
                )

    # --- polls

    def is_idle(self) -> bool:
        """Returns whether a poll may read the drain without `fill` first. The polling thread may call this."""
        if self.woken or self.committer.due or self._is_revoking:
            return False
        if self.subscription.is_unchecked or self.resets.are_due:
            return False
        if self.link is not None and self.subscription.auto_assigned:
            if self.link.needs_poll:
                return False
            self.link.note_poll()
        return True

    def read(self, max_records: int) -> Records:
        """Returns records from the drain, but none while partitions are about to be revoked. The polling thread may
        call this."""
        if self._is_revoking:
            return {}
        records = self.drain.read(max_records)
        if records:
            self.unfinished.note(records)
        return records

    def read_columns(self, request: ColumnRequest) -> pa.RecordBatch | None:
        """Returns rows of one partition from the drain, as `read` returns records, or None if there are none."""
        polled = None if self._is_revoking else self.drain.read_columns(request)
        if polled is None:
            return None
        self.unfinished.note_position(polled.tp, polled.position)
        return polled.rows

    async def fill(self, deadline_s: float) -> None:
        """Does the work that is due, and loads records. Returns when there are records to `read`, or at `deadline_s` on
        the loop's clock.

        Raises WakeupError, ClosedError, and errors that the user has to handle."""
        while True:
            self._signal.clear()
            self._check_waiting()
            await self._maintain()
            # No await may follow before `_reload`, so that no records of a replaced leader are loaded unchecked.
            self.subscription.check_leaders(self._leader_epoch_of)
            self.positions.start()
            self._reload()
            readable = self.drain.reading() and not self._is_revoking
            if readable or not await self._wait_until(deadline_s):
                return

    async def wait_for(self, condition: Callable[[], T | None], timeout_ms: int, what: str) -> T:
        """Waits until `condition()` is not None, and returns its value. Meanwhile positions are looked up.

        Raises the errors of `fill`, and TimeoutError."""
        deadline_s = self._loop.time() + timeout_ms / 1000
        while True:
            self._signal.clear()
            self._check_waiting()
            result = condition()
            if result is not None:
                return result
            self.positions.start()
            self._raise_failures()
            if not await self._wait_until(deadline_s):
                raise TimeoutError(f"{what} took longer than {timeout_ms} ms")

    async def interruptible(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine and returns its result. `wakeup` cancels the coroutine and raises WakeupError. The coroutine
        has ended in any case."""
        task = self._loop.create_task(coroutine)
        task.add_done_callback(lambda _: self.notify())
        try:
            while not task.done():
                self._signal.clear()
                self._check_waiting()
                await self._signal.wait()
        finally:
            task.cancel()
            await asyncio.wait((task,))
        return task.result()

    def notify(self) -> None:
        """Wakes a waiting `fill` so that it checks its condition again."""
        self._signal.set()

    def _check_waiting(self) -> None:
        """Raises WakeupError or ClosedError if a waiting call must end."""
        self.require_open()
        if self.woken:
            self.woken = False
            raise WakeupError("wakeup was called")

    def require_open(self) -> None:
        if self.closed:
            raise ClosedError("the consumer is closed")

    def require_subscription(self) -> None:
        """Raises IllegalStateError if a poll could never return records."""
        if self.subscription.type is SubscriptionType.NONE:
            raise IllegalStateError("the consumer is not subscribed to any topics or assigned any partitions")

    def positions_changed(self) -> None:
        """Starts fetches after seek, assign, resume and similar calls.

        The next poll looks up positions, as in Kafka. If a look-up began here, the automatic commit of `close` could
        store its result over an offset that the user has committed since."""
        self.positions.drop_failure()
        self.fetcher.pump()
        self.topics.watch()

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns the consumer's identity for transactions. After `assign`, it names no member. Raises ConfigError
        without group.id."""
        if self.link is None:
            raise ConfigError("group_metadata needs group.id")
        identity = self.link.identity if self.subscription.auto_assigned else OUTSIDE_THE_GROUP
        return ConsumerGroupMetadata(
            self.link.group_id, identity.generation_id, identity.member_id, self.config.group_instance_id
        )

    def named(self, client: str) -> str:
        """Returns the text for the consumer's `repr`."""
        group = [f"group.id={self.config.group_id}"] if self.config.group_id else []
        subscribed = [f"topics={','.join(sorted(self.subscription.topics))}"] if self.subscription.topics else []
        assigned = f"partitions={len(self.subscription.assignment)}"
        return self.config.named(client, *group, *subscribed, "closed" if self.closed else assigned)

    def intercept(self, records: Records) -> Records:
        """Returns the records of a poll after all interceptors. An empty result is not passed to them."""
        if not records:
            return records
        for interceptor in self.config.interceptor_classes:
            try:
                records = interceptor.on_consume(records)
            except Exception:
                logger.exception("interceptor %r failed in on_consume", interceptor)
        return records

    async def _wait_until(self, deadline_s: float) -> bool:
        """Waits for a signal. Returns False if the deadline came first."""
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._signal.wait()
        except TimeoutError:
            return False
        return True

    @property
    def _is_revoking(self) -> bool:
        """True while the commit before a revocation is under way. Records returned after that commit would be read
        again by the next owner."""
        return self.rebalancer is not None and self.rebalancer.waits

    def _reload(self) -> None:
        self.buffer.release(self.drain.finished())
        if not self.drain.reading():
            self.drain.load(self.buffer.take())
        self.fetcher.pump(read=True)

    async def _maintain(self) -> None:
        self._raise_failures()
        subscription = self.subscription
        subscribes = subscription.topics or subscription.server_pattern or subscription.assignment
        if subscription.auto_assigned and subscribes:
            assert self.rebalancer is not None, "a subscription without a group"
            await self.rebalancer.advance()
        if not self._is_revoking:
            self.committer.commit_if_due()
        self.topics.watch()
        await self.resets.deliver()
        self._raise_failures()

    def _raise_failures(self) -> None:
        failure: Exception | None = self.client.take_refusal()
        failure = failure or self.fetcher.take_failure() or self.positions.take_failure() or self.topics.take_failure()
        if failure is None and self.link is not None and self.subscription.auto_assigned:
            failure = self.link.take_failure()
        if failure is not None:
            raise failure

    def _leader_epoch_of(self, tp: TopicPartition) -> int:
        cluster = self.client.cluster
        return NO_LEADER_EPOCH if cluster.leader_of(tp) is None else cluster.leader_epoch_of(tp)

    def _on_match_changed(self) -> None:
        assert self.link is not None, "a pattern without a group"
        self.link.request_rejoin("the topics that match the pattern changed")

    def _on_cluster_change(self, _: ClusterView, __: ClusterView) -> None:
        self.subscription.is_unchecked = True
        self.fetcher.pump()
        self.notify()

    async def _commit_before_rebalance(self) -> None:
        # The group waits for this member no longer than max.poll.interval.ms.
        timeout_ms = min(self.config.request_timeout_ms, self.config.max_poll_interval_ms)
        await self.committer.commit_before_revocation(timeout_ms)

    # --- the end

    async def leave_group(self, reason: str, *, static: bool, timeout_ms: int) -> None:
        """Leaves the group. First commits if commits are automatic, and calls the listener. Raises the listener's
        exception at the end."""
        if self.link is None or self.rebalancer is None or not self.subscription.auto_assigned:
            return
        deadline_s = self._loop.time() + timeout_ms / 1000
        await self.rebalancer.close()
        if self.link.identity.generation_id >= 0:
            await self.committer.commit_before_revocation(timeout_ms)
        try:
            await self.rebalancer.give_up()
        finally:
            left_ms = max(1, int((deadline_s - self._loop.time()) * 1000))
            await self.link.leave(reason, static=static, timeout_ms=left_ms)

    async def close(self, timeout_ms: int, *, leave_static: bool) -> None:
        """Closes all parts of the consumer within about `timeout_ms`."""
        if self.closed:
            return
        self.closed = True
        self.notify()
        try:
            if self.subscription.auto_assigned:
                await self.leave_group("the consumer is being closed", static=leave_static, timeout_ms=timeout_ms)
            else:
                await self.committer.commit_before_revocation(timeout_ms)
        finally:
            await self._stop(timeout_ms)

    async def _stop(self, timeout_ms: int) -> None:
        await self.committer.close(timeout_ms)
        await self.topics.close()
        if self.rebalancer is not None:
            await self.rebalancer.close()
        if self.link is not None:
            await self.link.close()
        await self.fetcher.close()
        await self.positions.close()
        self.subscription.unsubscribe()
        await self.client.close()

    def metrics(self) -> dict[str, float]:
        """Returns Kafka's metric names, without the group, and totals since the consumer was created."""
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
            "position-resets-total": self.resets.resets_total,
            "records-skipped-total": self.resets.skipped_total,
            "fetch-buffered-bytes": self.buffer.buffered_bytes,
            "assigned-partitions": len(self.subscription.assignment),
            "commit-total": self.committer.commits_total,
            "commit-failed-total": self.committer.failures_total,
            "heartbeat-total": 0 if link is None else link.heartbeats_total,
            "rebalance-total": 0 if link is None else link.rebalances_total,
        }

    def lag_of(self, tp: TopicPartition) -> int | None:
        """Returns the number of offsets between the position and the end that this consumer may read, or None if it is
        not known yet."""
        state = self.subscription.require(tp)
        committed_only = self.config.isolation_level == "read_committed"
        end = state.last_stable_offset if committed_only else state.high_watermark
        if end is None or state.position < 0:
            return None
        return max(0, end - state.position)
