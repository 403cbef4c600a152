"""The Consumer for threads: an AsyncConsumer on the shared loop thread, polled from the caller's.

Fetches, heartbeats and joins run in the background whatever the caller does. The caller's thread decompresses, decodes
and deserializes records. Most polls do not call the loop: they read records that an earlier poll has loaded. Listeners,
interceptors' on_consume and commit callbacks also run in the caller's thread, within poll, commit, unsubscribe and
close."""

from __future__ import annotations

import contextlib
import re
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, Unpack

from klamm.consumer.async_consumer import CLOSE_TIMEOUT_MS, AsyncConsumer, limit_of
from klamm.consumer.config import ConsumerConfig, Records
from klamm.consumer.core.committer import CommitCallback
from klamm.consumer.fetch.column_request import column_request, empty_batch
from klamm.consumer.group.rebalance_reports import ConsumerRebalanceListener
from klamm.consumer.record import ConsumerRecord
from klamm.core import core as compiled_core
from klamm.core import new_lock
from klamm.errors import ClosedError, ConcurrentAccessError
from klamm.model import TopicPartition
from klamm.offsets import ConsumerGroupMetadata, OffsetAndMetadata, OffsetAndTimestamp
from klamm.threads.caller_thread import CallerThread
from klamm.threads.loop_thread import LoopThread
from klamm.type_variables import KeyT, ValueT

if TYPE_CHECKING:
    import pyarrow as pa

    from klamm.consumer.setting_types import ConsumerSettings

P = ParamSpec("P")
T = TypeVar("T")
_LONGEST_WAIT_S = 1e6


class Consumer(Generic[KeyT, ValueT]):
    """Reads records of topics. Each method does the same as that of AsyncConsumer, but waits for the result.

    Two threads must not use a consumer at once, which raises ConcurrentAccessError. Only `wakeup` may be called from
    any thread. Use it as a context manager, or call `close`.

    With enable.auto.commit, the end of the `with` block commits all records that were returned. After an exception it
    commits only those that were surely processed: the records of earlier polls, or those before the last one of an
    iteration."""

    def __init__(
        self, config: Mapping[str, Any] | None = None, /, **settings: Unpack[ConsumerSettings[KeyT, ValueT]]
    ) -> None:
        parsed = ConsumerConfig.parse(config, **settings)
        self._turn = new_lock()
        self._due_callbacks: deque[Callable[[], object]] = deque()
        self._loop_thread = LoopThread.shared()
        self._caller = CallerThread(self._loop_thread)
        self._async = self._loop_thread.run(self._create, parsed)
        self._core = self._async.core
        self._iteration = self._async.iteration

    async def _create(self, config: ConsumerConfig) -> AsyncConsumer[KeyT, ValueT]:
        return AsyncConsumer.with_user_code(config, invoke=self._caller.invoke, deliver=self._due_callbacks.append)

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
        self._call(lambda: self._async.subscribe(topics, pattern=pattern, listener=listener))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Consumes exactly these partitions, without group management. Partitions that were assigned before keep their
        position.

        Raises IllegalStateError after `subscribe`."""
        self._call(lambda: self._async.assign(partitions))

    def unsubscribe(self) -> None:
        """Ends the subscription or the assignment. After `subscribe`, the consumer also leaves the group."""
        self._run(self._async.unsubscribe)

    def subscription(self) -> frozenset[str]:
        """Returns the subscribed topics. With a pattern, these are the topics that match it."""
        return self._call(self._async.subscription)

    def assignment(self) -> frozenset[TopicPartition]:
        """Returns the partitions that are consumed now."""
        return self._call(self._async.assignment)

    # --- records

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> Records[KeyT, ValueT]:
        """Returns available records. If there are none, waits up to `timeout_ms` for the first records. Returns at most
        `max_records` records, by default `max.poll.records`.

        Within a poll, the consumer takes part in rebalances, starts automatic commits, and calls the rebalance listener
        and on.position.reset. Raises NoOffsetForPartitionError, OffsetOutOfRangeError and LogTruncationError (with
        auto.offset.reset=none), RecordDeserializationError, CorruptRecordError and BatchTooLargeError. Also raises the
        exceptions of the listener and of on.position.reset, and the group's error if it refused this member."""
        core = self._core
        limit = limit_of(core.config, max_records)
        with self._access():
            return core.intercept(self._first(lambda: core.read(limit), timeout_ms))

    def poll_arrow(
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
        core = self._core
        request = column_request(core.config, columns, max_records)
        rows = self._first_with_access(lambda: core.read_columns(request), timeout_ms)
        return empty_batch(request) if rows is None else rows

    def _first_with_access(self, read: Callable[[], T], timeout_ms: float) -> T:
        """Does the same as `_first`, with exclusive use of the consumer."""
        with self._access():
            return self._first(read, timeout_ms)

    def _first(self, read: Callable[[], T], timeout_ms: float) -> T:
        """Returns the first result of `read` that is not empty. Returns an empty one after `timeout_ms`."""
        core = self._core
        core.require_open()
        core.require_subscription()
        self._run_callbacks()
        core.unfinished.finish()
        if self._iteration:
            self._call(self._iteration.abandon)
        deadline_s = time.monotonic() + min(timeout_ms / 1000, _LONGEST_WAIT_S)
        while True:
            if core.is_idle() and (found := read()):
                return found
            self._run(core.fill, deadline_s)
            found = read()
            if found or time.monotonic() >= deadline_s:
                return found

    def __iter__(self) -> Iterator[ConsumerRecord[KeyT, ValueT]]:
        self._core.require_open()
        if compiled_core is not None:
            return compiled_core.RecordLoop(self._turn, self._iteration, self._next)  # type: ignore[no-any-return]
        return iter(self._next, None)

    def __next__(self) -> ConsumerRecord[KeyT, ValueT]:
        record = self._next()
        if record is None:
            raise StopIteration
        return record

    def _next(self) -> ConsumerRecord[KeyT, ValueT] | None:
        """Returns the next record. Returns None after `consumer.timeout.ms` without a record, or when the consumer is
        closed. It does not use `_access`, which costs more than the rest of this method."""
        if not self._turn.acquire(blocking=False):
            raise _in_use()
        try:
            record = self._iteration.next()
            return self._next_of_a_poll() if record is None else record
        finally:
            self._turn.release()

    def _next_of_a_poll(self) -> ConsumerRecord[KeyT, ValueT] | None:
        idle_ms = self._core.config.consumer_timeout_ms
        while True:
            try:
                polled = self.poll(_LONGEST_WAIT_S * 1000 if idle_ms is None else idle_ms)
            except ClosedError:
                return None
            self._iteration.load(polled)
            record = self._iteration.next()
            if record is not None or idle_ms is not None:
                return record

    # --- commits

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Commits `offsets`, or by default the positions of all assigned partitions, and waits for the result.

        Raises CommitFailedError if the group has given the partitions to other members. Raises RebalanceInProgressError
        during a rebalance (poll first), and IllegalStateError without a group.id."""
        self._run(self._async.commit, offsets, timeout_ms)
        self._run_callbacks()

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commits like `commit`, but returns immediately and does not retry. Calls `callback(offsets, error or None)`
        afterwards."""
        self._call(lambda: self._async.commit_async(offsets, callback))

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the committed offset of the group for each of `partitions`, or None where nothing is committed."""
        return self._run(self._async.committed, partitions, timeout_ms)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns this consumer's identity in its group, for `Producer.send_offsets_to_transaction`.

        Raises ConfigError without group.id."""
        return self._call(self._async.group_metadata)

    # --- positions

    def position(self, tp: TopicPartition, timeout_ms: int | None = None) -> int:
        """Returns the offset of the next record. Waits until the offset is known. Raises TimeoutError, and the errors
        of `poll`."""
        return self._run(self._async.position, tp, timeout_ms)

    def seek(self, tp: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Moves the position: the next record of `tp` is the one at `offset`, or the first record after it.

        If `offset` has a leader epoch, the consumer checks that the record before it is still in the log. If it is not,
        the consumer continues as after a log truncation (KIP-320)."""
        self._call(lambda: self._async.seek(tp, offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Moves the positions to the first available records, by default of all assigned partitions."""
        self._call(lambda: self._async.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Moves the positions to the end of the log, by default of all assigned partitions."""
        self._call(lambda: self._async.seek_to_end(*partitions))

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Moves the positions to the first records at or after `timestamp_ms`, or to the end of the log if there are
        none. The default is all assigned partitions."""
        self._call(lambda: self._async.seek_to_timestamp(timestamp_ms, *partitions))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns the first offset at or after each time, or None if there is none. Partitions need not be assigned."""
        return self._run(self._async.offsets_for_times, timestamps, timeout_ms)

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition. Partitions need not be assigned."""
        return self._run(self._async.beginning_offsets, partitions, timeout_ms)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the end offset of each partition: one past the last offset that this isolation.level may read.
        Partitions need not be assigned."""
        return self._run(self._async.end_offsets, partitions, timeout_ms)

    def pause(self, *partitions: TopicPartition) -> None:
        """Pauses partitions: polls return none of their records until `resume`. A partition that is revoked loses its
        pause."""
        self._call(lambda: self._async.pause(*partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Ends the pause of partitions. They continue where they were paused."""
        self._call(lambda: self._async.resume(*partitions))

    def paused(self) -> frozenset[TopicPartition]:
        """Returns the partitions that are paused now."""
        return self._call(self._async.paused)

    def lag(self, tp: TopicPartition) -> int | None:
        """Returns the number of records between the position and the end of the log, as of the last fetch. Returns None
        if it is not known yet."""
        return self._call(lambda: self._async.lag(tp))

    # --- the rest

    def partitions_for(self, topic: str) -> frozenset[int] | None:
        """Returns the topic's partition numbers, or None if the topic does not exist."""
        return self._run(self._async.partitions_for, topic)

    def wakeup(self) -> None:
        """Makes the waiting call raise WakeupError. If no call waits, the next call that would wait raises it. Any
        thread may call this."""
        self._async.wakeup()

    def metrics(self) -> dict[str, float]:
        """Returns the consumer's metrics under Kafka's names, for example `records-consumed-total`."""
        return self._call(self._async.metrics)

    def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS, *, leave: bool | None = None) -> None:
        """Closes the consumer. First commits if commits are automatic, calls the rebalance listener, and leaves the
        group.

        `leave`: whether a static member leaves the group too. By default only dynamic members leave."""
        self._run(self._async.close, timeout_ms, leave=leave)
        self._run_callbacks()

    def __repr__(self) -> str:
        return self._core.named("Consumer")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self._call(self._core.unfinished.take_back)
        self.close()

    # --- threads

    @contextlib.contextmanager
    def _access(self) -> Iterator[None]:
        """Gives the calling thread exclusive use of the consumer. The same thread may enter again from a rebalance
        listener."""
        if not self._turn.acquire(blocking=False):
            raise _in_use()
        try:
            yield
        finally:
            self._turn.release()

    def _run(self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._access():
            return self._caller.run(function, *args, **kwargs)

    def _call(self, function: Callable[[], T]) -> T:
        """Calls `function` on the event loop, which owns the state, and returns its result."""

        async def call() -> T:
            return function()

        return self._run(call)

    def _run_callbacks(self) -> None:
        while self._due_callbacks:
            self._due_callbacks.popleft()()


def _in_use() -> ConcurrentAccessError:
    return ConcurrentAccessError("the consumer is in use by another thread; only wakeup is for any thread")
