"""The Consumer for asyncio: the whole API, on the loop that created it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

from klamm.consumer.config import ConsumerConfig, Records
from klamm.consumer.core.committer import CommitCallback
from klamm.consumer.core.consumer_core import ConsumerCore
from klamm.consumer.core.record_iteration import RecordIteration
from klamm.consumer.fetch.column_request import column_request, empty_batch
from klamm.consumer.group.rebalance_reports import ConsumerRebalanceListener, Invoke, WeakListener
from klamm.consumer.offsets.offset_store import Offsets
from klamm.consumer.partition_state import PositionState
from klamm.consumer.record import ConsumerRecord
from klamm.errors import ClosedError, ConcurrentAccessError, ConfigError
from klamm.forgotten import close_if_forgotten
from klamm.home_loop import HomeLoop
from klamm.model import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    TopicPartition,
    topic_name_problem,
)
from klamm.offsets import ConsumerGroupMetadata, OffsetAndMetadata, OffsetAndTimestamp, to_commit
from klamm.type_variables import KeyT, ValueT

if TYPE_CHECKING:
    import pyarrow as pa

    from klamm.consumer.setting_types import ConsumerSettings

logger = logging.getLogger(__name__)

A = TypeVar("A")

CLOSE_TIMEOUT_MS = 30_000
_FOREVER_MS = 1e9


class AsyncConsumer(Generic[KeyT, ValueT]):
    """Reads records of topics. Create and use it on one running event loop.

    With enable.auto.commit, the end of an `async with` block commits all records that were returned. After an exception
    it commits only those that were surely processed: the records of earlier polls, or those before the last one of an
    iteration.

    `config` has Kafka's dotted names. Keyword arguments have the same names with underscores. Times are in
    milliseconds. Only one task at a time may use a consumer: a poll while another poll is under way raises
    ConcurrentAccessError. Only `wakeup` may be called from any task or thread. Most methods raise ClosedError
    after `close`, WakeupError after `wakeup`, and the errors of klamm.errors that a server answered.

    A poll decompresses, decodes and deserializes whole batches (often 1 MiB) on the event loop, and other tasks wait
    meanwhile. If that is too long, use Consumer, which does this work in the caller's thread."""

    def __init__(
        self, config: Mapping[str, Any] | None = None, /, **settings: Unpack[ConsumerSettings[KeyT, ValueT]]
    ) -> None:
        self.core = ConsumerCore(ConsumerConfig.parse(config, **settings), invoke=_invoke, deliver=_call)
        self._start()

    @classmethod
    def with_user_code(
        cls, config: ConsumerConfig, *, invoke: Invoke, deliver: Callable[[Callable[[], object]], None]
    ) -> Self:
        """Returns the consumer that a synchronous Consumer wraps. It calls user code in the Consumer's own thread."""
        consumer = cls.__new__(cls)
        consumer.core = ConsumerCore(config, invoke=invoke, deliver=deliver)
        consumer._start()
        return consumer

    def _start(self) -> None:
        # `core` and `iteration` are for the synchronous Consumer, which reads them in its own thread.
        self._loop = asyncio.get_running_loop()
        self._home = HomeLoop("AsyncConsumer")
        self._polling = False
        self.iteration = RecordIteration(self.core.subscription, self.core.unfinished)
        self._listener = WeakListener(None)
        core = self.core
        name = f"Consumer client.id={core.config.client_id} group.id={core.config.group_id}"
        close = functools.partial(_close_forgotten, core, self.iteration)
        close_if_forgotten(self, self._loop, name, is_closed=lambda: core.closed, close=close)

    # --- what to consume

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribes to topics by name, or to all topics whose whole name matches `pattern`. The members of the group
        share the partitions.

        Replaces the previous subscription with the next poll. With group.protocol=consumer, the coordinator matches a
        pattern that is given as text, in RE2's syntax. The consumer itself matches a compiled pattern. Raises
        ConfigError without a group.id and for illegal names or patterns, and IllegalStateError after `assign`."""
        core = self.core
        self._require_open()
        if core.link is None or core.rebalancer is None:
            raise ConfigError("subscribing needs a group.id; without one, use assign")
        names = _topic_names(topics)
        if bool(names) == (pattern is not None):
            raise ConfigError("subscribe takes either topics or a pattern; use unsubscribe for nothing at all")
        if isinstance(pattern, str) and core.config.group_protocol == "consumer":
            core.subscription.subscribe_server_pattern(pattern)
            core.link.request_rejoin("the subscription changed")
        elif pattern is not None:
            core.subscription.subscribe_pattern(_compiled(pattern))
            core.topics.pattern_changed()
        elif core.subscription.subscribe_topics(names):
            core.link.request_rejoin("the subscription changed")
        self._listener = core.rebalancer.reports.listen(listener)
        core.positions_changed()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Consumes exactly these partitions, without group management. Partitions that were assigned before keep their
        position.

        Raises IllegalStateError after `subscribe`."""
        self._require_open()
        wanted = [TopicPartition(*tp) for tp in partitions]
        _topic_names(tp.topic for tp in wanted)
        self.core.subscription.assign(wanted)
        self.core.positions_changed()

    async def unsubscribe(self) -> None:
        """Ends the subscription or the assignment. After `subscribe`, the consumer also leaves the group."""
        core = self.core
        self._require_open()
        self.iteration.abandon()
        try:
            timeout_ms = core.config.default_api_timeout_ms
            await core.leave_group("the consumer unsubscribed", static=False, timeout_ms=timeout_ms)
        finally:
            core.subscription.unsubscribe()
            core.positions_changed()

    def subscription(self) -> frozenset[str]:
        """Returns the subscribed topics. With a pattern, these are the topics that match it."""
        return self.core.subscription.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """Returns the partitions that are consumed now."""
        return self.core.subscription.assignment

    # --- records

    async def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> Records[KeyT, ValueT]:
        """Returns available records. If there are none, waits up to `timeout_ms` for the first records. Returns at most
        `max_records` records, by default `max.poll.records`.

        Within a poll, the consumer takes part in rebalances, starts automatic commits, and calls the rebalance listener
        and on.position.reset. Raises NoOffsetForPartitionError, OffsetOutOfRangeError and LogTruncationError (with
        auto.offset.reset=none), RecordDeserializationError, CorruptRecordError and BatchTooLargeError. Also raises the
        exceptions of the listener and of on.position.reset, and the group's error if it refused this member."""
        core = self.core
        limit = limit_of(core.config, max_records)
        with self._exclusively():
            return core.intercept(await self._first(lambda: core.read(limit), timeout_ms))

    async def poll_arrow(
        self, timeout_ms: float = 0, max_records: int | None = None, columns: Iterable[str] | None = None
    ) -> pa.RecordBatch:
        """Returns available records of one partition as a pyarrow.RecordBatch, without a Python object for each record.
        If there are none, waits up to `timeout_ms`, and then returns a batch without rows.

        The columns are topic, partition, offset, timestamp, timestamp_type, key, value, headers and leader_epoch.
        `columns` names those that are wanted; each one left out saves work. Returns at most `max_records` rows. The
        default is what one fetch of the partition has, whatever `max.poll.records` is.

        Moves the position, and does all else, as `poll` does. Both may be used in turn. Raises the errors of `poll`,
        IllegalStateError if the consumer has deserializers or interceptors, which would not see the records, and
        ImportError without pyarrow (`pip install 'klamm[arrow]'`)."""
        core = self.core
        request = column_request(core.config, columns, max_records)
        with self._exclusively():
            rows = await self._first(lambda: core.read_columns(request), timeout_ms)
        return empty_batch(request) if rows is None else rows

    async def _first(self, read: Callable[[], A], timeout_ms: float) -> A:
        """Returns the first result of `read` that is not empty. Returns an empty one after `timeout_ms`."""
        core = self.core
        core.require_subscription()
        deadline_s = self._loop.time() + timeout_ms / 1000
        core.unfinished.finish()
        self.iteration.abandon()
        while True:
            if core.is_idle() and (found := read()):
                return found
            await core.fill(deadline_s)
            found = read()
            if found or self._loop.time() >= deadline_s:
                return found

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[KeyT, ValueT]]:
        self._require_open()
        return self._records()

    async def __anext__(self) -> ConsumerRecord[KeyT, ValueT]:
        """Returns the next record. Ends the iteration after `consumer.timeout.ms` without a record, or when the
        consumer is closed. The positions follow the records that the loop has received."""
        record = self.iteration.next() or await self._next_of_a_poll()
        if record is None:
            raise StopAsyncIteration
        return record

    async def _records(self) -> AsyncIterator[ConsumerRecord[KeyT, ValueT]]:
        """Yields the records of `async for`. A generator, because a coroutine for each record costs more."""
        next_record = self.iteration.next
        while (record := next_record() or await self._next_of_a_poll()) is not None:
            yield record

    async def _next_of_a_poll(self) -> ConsumerRecord[KeyT, ValueT] | None:
        idle_ms = self.core.config.consumer_timeout_ms
        while True:
            try:
                polled = await self.poll(_FOREVER_MS if idle_ms is None else idle_ms)
            except ClosedError:
                return None
            self.iteration.load(polled)
            record = self.iteration.next()
            if record is not None or idle_ms is not None:
                return record

    # --- commits

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Commits `offsets`, or by default the positions of all assigned partitions, and waits for the result.

        Raises CommitFailedError if the group has given the partitions to other members. Raises RebalanceInProgressError
        during a rebalance (poll first), and IllegalStateError without a group.id."""
        self._require_open()
        wanted = self._to_commit(offsets)
        self.core.unfinished.note_commit(wanted)
        await self.core.interruptible(self.core.committer.commit(wanted, self._timeout_ms(timeout_ms)))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commits like `commit`, but returns immediately and does not retry. Calls `callback(offsets, error or None)`
        afterwards."""
        self._require_open()
        wanted = self._to_commit(offsets)
        self.core.unfinished.note_commit(wanted)
        self.core.committer.commit_async(wanted, callback)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the committed offset of the group for each of `partitions`, or None where nothing is committed."""
        self._require_open()
        wanted = [TopicPartition(*tp) for tp in partitions]
        fetch = self.core.committer.store().fetch(wanted, timeout_ms=self._timeout_ms(timeout_ms))
        found = await self.core.interruptible(fetch)
        return {tp: found.get(tp) for tp in wanted}

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns this consumer's identity in its group, for `Producer.send_offsets_to_transaction`.

        Raises ConfigError without group.id."""
        self._require_open()
        return self.core.group_metadata()

    # --- positions

    async def position(self, tp: TopicPartition, timeout_ms: int | None = None) -> int:
        """Returns the offset of the next record. Waits until the offset is known. Raises TimeoutError, and the errors
        of `poll`."""
        self._require_open()

        def known() -> int | None:
            state = self.core.subscription.require(tp)
            return state.position if state.state is PositionState.FETCHING else None

        return await self.core.wait_for(known, self._timeout_ms(timeout_ms), f"finding the position of {tp}")

    def seek(self, tp: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Moves the position: the next record of `tp` is the one at `offset`, or the first record after it.

        If `offset` has a leader epoch, the consumer checks that the record before it is still in the log. If it is not,
        the consumer continues as after a log truncation (KIP-320)."""
        if isinstance(offset, int):
            offset = OffsetAndMetadata(offset)
        if offset.offset < 0:
            raise ConfigError(f"seek to {offset.offset}: expected an offset of 0 or more")
        self._require_open()
        self.core.subscription.require(tp).seek(offset.offset, offset.leader_epoch)
        self.core.positions_changed()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Moves the positions to the first available records, by default of all assigned partitions."""
        self._reset(partitions, EARLIEST_TIMESTAMP)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Moves the positions to the end of the log, by default of all assigned partitions."""
        self._reset(partitions, LATEST_TIMESTAMP)

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Moves the positions to the first records at or after `timestamp_ms`, or to the end of the log if there are
        none. The default is all assigned partitions."""
        if timestamp_ms < 0:
            raise ConfigError(f"seek to timestamp {timestamp_ms}: expected milliseconds since the epoch")
        self._reset(partitions, timestamp_ms)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns the first offset at or after each time, or None if there is none. Partitions need not be assigned."""
        found = await self._list_offsets(dict(timestamps), timeout_ms)
        return {tp: entry if entry.offset >= 0 else None for tp, entry in found.items()}

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition. Partitions need not be assigned."""
        found = await self._list_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP), timeout_ms)
        return {tp: start.offset for tp, start in found.items()}

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the end offset of each partition: one past the last offset that this isolation.level may read.
        Partitions need not be assigned."""
        found = await self._list_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP), timeout_ms)
        return {tp: end.offset for tp, end in found.items()}

    def pause(self, *partitions: TopicPartition) -> None:
        """Pauses partitions: polls return none of their records until `resume`. A partition that is revoked loses its
        pause."""
        self._require_open()
        for tp in partitions:
            self.core.subscription.require(tp).paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Ends the pause of partitions. They continue where they were paused."""
        self._require_open()
        for tp in partitions:
            self.core.subscription.require(tp).paused = False
        self.core.positions_changed()

    def paused(self) -> frozenset[TopicPartition]:
        """Returns the partitions that are paused now."""
        return self.core.subscription.paused()

    def lag(self, tp: TopicPartition) -> int | None:
        """Returns the number of records between the position and the end of the log, as of the last fetch. Returns None
        if it is not known yet."""
        return self.core.lag_of(tp)

    # --- the rest

    async def partitions_for(self, topic: str) -> frozenset[int] | None:
        """Returns the topic's partition numbers, or None if the topic does not exist."""
        self._require_open()
        cluster = await self.core.interruptible(self.core.client.refresh_metadata([topic]))
        count = cluster.partition_count(topic)
        return None if count is None else frozenset(range(count))

    def wakeup(self) -> None:
        """Makes the waiting call raise WakeupError. If no call waits, the next call that would wait raises it. Any
        thread may call this."""
        self.core.woken = True
        self._loop.call_soon_threadsafe(self.core.notify)

    def metrics(self) -> dict[str, float]:
        """Returns the consumer's metrics under Kafka's names, for example `records-consumed-total`."""
        return self.core.metrics()

    async def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS, *, leave: bool | None = None) -> None:
        """Closes the consumer. First commits if commits are automatic, calls the rebalance listener, and leaves the
        group.

        `leave`: whether a static member leaves the group too. By default only dynamic members leave."""
        self._home.check()
        self.iteration.abandon()
        await self.core.close(timeout_ms, leave_static=bool(leave))

    def __repr__(self) -> str:
        return self.core.named("AsyncConsumer")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.core.unfinished.take_back()
        await self.close()

    # --- helpers

    def _require_open(self) -> None:
        self._home.check()
        self.core.require_open()

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        self._require_open()
        if self._polling:
            raise ConcurrentAccessError("the consumer is being polled already; it is for one task at a time")
        self._polling = True
        try:
            yield
        finally:
            self._polling = False

    def _timeout_ms(self, timeout_ms: int | None) -> int:
        return self.core.config.default_api_timeout_ms if timeout_ms is None else timeout_ms

    def _to_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None) -> Offsets:
        self.core.committer.store()
        if offsets is None:
            return self.core.subscription.positions()
        return to_commit(offsets)

    def _reset(self, partitions: tuple[TopicPartition, ...], timestamp_ms: int) -> None:
        self._require_open()
        for tp in partitions or sorted(self.assignment()):
            self.core.subscription.require(tp).request_reset(timestamp_ms)
        self.core.positions_changed()

    async def _list_offsets(
        self, timestamps: dict[TopicPartition, int], timeout_ms: int | None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        self._require_open()
        find = self.core.finder.find(timestamps, timeout_ms=self._timeout_ms(timeout_ms))
        return await self.core.interruptible(find)


async def _close_forgotten(core: ConsumerCore, iteration: RecordIteration) -> None:
    """Closes a consumer that the application has dropped, perhaps with records that it had not processed. So their
    offsets are not committed, and no listener is called."""
    if core.rebalancer is not None:
        core.rebalancer.reports.listen(None)
    core.unfinished.take_back()
    iteration.abandon()
    await core.close(CLOSE_TIMEOUT_MS, leave_static=False)


async def _invoke(function: Callable[[A], object], argument: A) -> None:
    result = function(argument)
    if inspect.isawaitable(result):
        await result


def _call(function: Callable[[], object]) -> None:
    try:
        function()
    except Exception:
        logger.exception("a commit callback failed")


def limit_of(config: ConsumerConfig, max_records: int | None) -> int:
    if max_records is None:
        return config.max_poll_records
    if max_records < 1:
        raise ConfigError(f"max_records={max_records}: expected at least 1")
    return max_records


def _topic_names(topics: Iterable[str]) -> list[str]:
    if isinstance(topics, str):
        raise ConfigError(f"topics={topics!r}: expected a list of names")
    names = list(topics)
    for name in names:
        problem = topic_name_problem(name)
        if problem is not None:
            raise ConfigError(problem)
    return names


def _compiled(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"pattern={pattern!r}: {error}") from error
