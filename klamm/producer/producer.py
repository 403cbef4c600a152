"""The synchronous Producer: fills the accumulator in the caller's thread, sends on the shared loop thread.

`send` takes one lock and does not switch threads. Only a batch that becomes due wakes the loop."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, Unpack

from klamm.batches import PreparedPart
from klamm.core import core
from klamm.errors import IllegalStateError
from klamm.model import TopicPartition
from klamm.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from klamm.producer import process_end
from klamm.producer.accumulator import PartitionQueue
from klamm.producer.config import ProducerConfig
from klamm.producer.engine import ProducerEngine
from klamm.producer.future import BatchFuture, ManyFuture, RecordFuture, Run, run_of, wait_for
from klamm.producer.intake import MANY_AT_ONCE, Header, Intake, check_partition
from klamm.producer.record import ProducerRecord
from klamm.producer.result import BatchResult, DeliveryCallback
from klamm.producer.user_partitioner import UserPartitioner
from klamm.records import PackedRecords, RawRecord
from klamm.threads.loop_thread import LoopThread, refuse_at_end
from klamm.threads.waiting_threads import WaitingThreads
from klamm.type_variables import KeyT, ValueT

if TYPE_CHECKING:
    from klamm.producer.setting_types import ProducerSettings

T = TypeVar("T")


ARROW_BYTES: Final = 8 * 1024 * 1024
"""The bytes of rows that `send_arrow` encodes together. Meanwhile the rows before them are sent."""
_NO_WAIT: Final = "A callback or destructor on the producer's own thread does not wait"


class _SendPath:
    """The base class of a Producer that sends every record in Python."""


if core is not None and not TYPE_CHECKING:
    _SendPath = core.SendPath


class Producer(_SendPath, Generic[KeyT, ValueT]):
    """Sends records to topics. It is thread-safe: one producer for all threads is faster than one for each thread.

    Create it with `Producer({"bootstrap.servers": "host:9094"})` or `Producer(bootstrap_servers="host:9094")`. Both
    forms accept every setting of ProducerConfig. Use it as a context manager, or call `close`. Functions of
    `atexit` may still send and flush. Records that are still buffered when all of them have run are lost, and a line on
    stderr says how many. A producer that the garbage collector finds open sends its records and closes itself, with a
    ResourceWarning.

    A signal handler or a destructor may call any method, also while it interrupts another one. If an exception such as
    KeyboardInterrupt interrupts `send`, the record may be sent or not. All other records are sent."""

    def __init__(
        self, config: Mapping[str, Any] | None = None, /, **settings: Unpack[ProducerSettings[KeyT, ValueT]]
    ) -> None:
        self._config = ProducerConfig.parse(config, **settings)
        self._intake = Intake(self._config)
        self._loop = LoopThread.shared()
        self._process_id = os.getpid()
        self._lock = self._loop.lock
        self._room = WaitingThreads()
        self._engine = ProducerEngine(
            self._config,
            self._lock,
            call_on_loop=self._loop.call_soon,
            on_settled=self._room.wake_all,
        )
        self._topics = self._engine.topics
        self._append = self._engine.append
        self._interceptors = self._engine.interceptors if self._config.interceptor_classes else None
        self._partitioner = self._engine.partitioner
        if core is not None and not TYPE_CHECKING:
            self._begin_core(self._engine, self._intake, not self._interceptors and self._partitioner is None)
        self._loop.call_soon(self._engine.start)
        process_end.watch(self._engine)
        self._engine.close_if_forgotten(self, self._loop.loop, "Producer")

    def send(
        self,
        topic: str,
        value: ValueT | None = None,
        key: KeyT | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> RecordFuture:
        """Buffers one record and returns immediately, unless it has to wait for metadata or memory.

        value, key: bytes, or a value for the configured serializer, or None. timestamp_ms: milliseconds since the
        epoch, by default now. on_delivery: called as `on_delivery(metadata, None)` or `on_delivery(None, error)` on the
        producer's loop thread, in the order of the partition's records. It must not block. If it ends the program, as
        sys.exit does, the producer's next call that waits raises this in its own thread.

        Raises these errors before anything is buffered: InvalidTopicError, UnknownTopicOrPartitionError (also for a
        topic that does not appear within `max.block.ms`), SerializationError, MessageTooLargeError,
        BufferExhaustedError, NoBrokerError, PartitionerError, IllegalStateError (closed, or no transaction begun),
        AbortableTransactionError, FatalProducerError."""
        if self._interceptors:
            topic, value, key, partition, timestamp_ms, headers = self._interceptors.on_send(
                ProducerRecord(topic, value, key, partition, timestamp_ms, headers)
            )
        if partition is not None:
            check_partition(partition)
        record, size_bytes = self._intake.prepare(topic, value, key, timestamp_ms, headers)
        if self._partitioner is not None and partition is None:
            partition = self._choose(self._partitioner, topic, key, value)
        return self._send_record(topic, partition, record, size_bytes, on_delivery)

    def send_many(
        self,
        topic: str,
        values: Iterable[ValueT | None],
        *,
        keys: Iterable[KeyT | None] | None = None,
        partition: int | None = None,
        headers: Sequence[Header] | None = None,
    ) -> ManyFuture:
        """Buffers many records. This costs less than a `send` for each of them.

        values: one for each record. keys: as many as values, or None. headers: the same for all records. Each record
        gets its partition as with `send`, and its timestamp is now. Waits for metadata and memory like `send`.

        All records are checked before the first one is buffered. If one of them is wrong, this raises the errors of
        `send`, and ValueError if there are not as many keys as values. If metadata or memory are missing later, the
        records before that are already buffered. `flush` waits for them."""
        if self._interceptors or self._partitioner is not None:
            return ManyFuture(self._send_each(topic, values, keys, partition, headers))
        if partition is not None:
            check_partition(partition)
        many = self._intake.prepare_many(topic, values, keys, headers)
        runs: list[Run] = []
        at, count = 0, len(many.values)
        while at < count:
            stop = min(count, at + MANY_AT_ONCE)
            at = self._append_many(topic, many.values, many.keys, partition, many.headers, at, stop, runs)
            if at < stop:
                runs.append(run_of(self._send_record(topic, partition, *many.record(at), None)))
                at += 1
        return ManyFuture(runs)

    def send_packed(self, topic: str, records: PackedRecords, *, partition: int | None = None) -> BatchFuture:
        """Buffers records that are already encoded. They become a batch of their own, which is sent without waiting for
        other records.

        partition: by default the partitioner selects one, as for a record without a key and value. Serializers and
        interceptors do not see the records. Raises the errors of `send`, and IllegalStateError if the producer has
        interceptors."""
        self._require_usable()
        if self._interceptors:
            raise IllegalStateError("send_packed: interceptor.classes would not see these records")
        if partition is not None:
            check_partition(partition)
        size_bytes = self._intake.check_packed(topic, records)
        if self._partitioner is not None and partition is None:
            partition = self._choose(self._partitioner, topic, None, None)
        return BatchFuture(self._place_packed(topic, partition, records, size_bytes))

    def send_arrow(self, topic: str, data: Any, *, partition: int | None = None) -> ManyFuture:
        """Buffers the rows of an Arrow table as records, without a Python object for each row. Waits for metadata and
        memory if necessary.

        data: a table of pyarrow, pandas, Polars or DuckDB, or anything else with `__arrow_c_stream__`. Its columns are
        key, value (binary or string), partition (an integer), timestamp (by default now) and headers (list of struct of
        key and value). Only value is required. The other columns of `poll_arrow` are ignored, so that its result can be
        sent. partition: the partition of all rows, instead of the column. A row without a partition goes where `send`
        would send its key. Rows without a key are spread in whole batches.

        Raises SerializationError before anything is sent if the columns are not those of records, and in the middle of
        the data if a row is none. Also raises the errors of `Producer.send`, IllegalStateError if the producer has
        serializers or interceptors, which would not see the records, and ImportError without pyarrow
        (`pip install 'klamm[arrow]'`)."""
        self._require_usable()
        table = self._engine.arrow_table(topic, data, partition)
        runs: list[Run] = []
        for rows in table.portions(ARROW_BYTES):
            timeout_ms = self._config.max_block_ms
            queues = self._topics.get(topic) or self._loop.run(self._engine.topic, topic, timeout_ms=timeout_ms)
            batches = table.pack(rows, len(queues.queues), self._partitioner, queues.infos)
            sizes = [self._intake.check_packed(topic, batch.records) for batch in batches]
            for batch, size_bytes in zip(batches, sizes, strict=True):
                result = self._place_packed(topic, batch.partition, batch.records, size_bytes)
                runs.append([result, 0, len(batch.records) - 1])
        return ManyFuture(runs)

    def flush(self, timeout: float | None = None) -> None:
        """Sends all records that are buffered now, and waits until all of them are acknowledged or have failed.

        Raises TimeoutError after `timeout` seconds, and IllegalStateError inside a callback."""
        self._require_usable()
        self._refuse_in_callback("flush")
        deadline_s = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            results = self._engine.accumulator.flush()
        for result in results:
            wait_for(result, None if deadline_s is None else max(0.0, deadline_s - time.monotonic()))
        self._engine.calls.raise_exit()

    def close(self, timeout: float | None = None) -> None:
        """Closes the producer. Sends buffered records for at most `timeout` seconds; records that are unsent then fail.

        It may be called again. Raises IllegalStateError inside a callback. In a forked child it does nothing."""
        if self._process_id != os.getpid():
            return
        self._refuse_in_callback("close")
        self._loop.run(self._engine.close, timeout)
        self._engine.calls.raise_exit()

    def init_transactions(self, transactional_id: str | None = None) -> None:
        """Fences earlier producers of this `transactional.id` and ends their transactions.

        Call it once, before the first transaction. Like the other methods of transactions, it waits for at most
        `max.block.ms`. After a RequestTimedOutError the outcome is unknown: call the method again. With
        `transactional_id`, the producer continues under that id, for a transaction that was prepared
        (`prepare_transaction`). Raises IllegalStateError out of turn, and FatalProducerError if the producer cannot be
        used any more."""
        self._loop.run(self._engine.transactions.initialize, transactional_id)

    def begin_transaction(self) -> None:
        """Begins a transaction: all records sent from now on are part of it. Raises the errors of
        `init_transactions`.
        """
        self._require_usable()
        self._engine.transactions.begin()

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Commits the offsets that a consumer has read, as part of the transaction (KIP-447).

        offsets: the next offset to read of each partition. group: `consumer.group_metadata()`, taken after the poll
        that returned the records. The consumer itself must not commit (`enable.auto.commit`). Raises the errors of
        `commit_transaction`. After a failure the transaction must be aborted."""
        self._loop.run(self._engine.transactions.send_offsets, offsets, group)

    def commit_transaction(self) -> None:
        """Sends all buffered records and commits the transaction.

        Raises AbortableTransactionError if a part of the transaction failed, which must then be aborted. Also raises
        the errors of `init_transactions`."""
        self._loop.run(self._engine.transactions.commit)

    def prepare_transaction(self, run_id: str, batch_id: int) -> PreparedPart | None:
        """Sends all buffered records and prepares the transaction, so that a batch ledger decides whether it commits
        (`klamm.batches`).

        The transactional.id must be that of a part of the ledger, and the run must have registered. Returns the part
        that the ledger's decision names, or None if no records were written. Before its next transaction the producer
        must call `init_transactions` again, which aborts an undecided transaction. Raises RunFencedError,
        BatchRewoundError or BatchAbortedError if the run's work on the batch has ended. Also raises the errors of
        `commit_transaction`."""
        return self._loop.run(self._engine.transactions.prepare, run_id, batch_id)

    def abort_transaction(self) -> None:
        """Aborts the transaction. Its buffered records are not sent. Raises the errors of `init_transactions`."""
        self._loop.run(self._engine.transactions.abort)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Self]:
        """Begins a transaction for `with producer.transaction(): ...`. Commits it at the end, or aborts it after
        an exception.

        The exception of the block, or of the commit, is raised after the abort. A commit that timed out is not aborted:
        call `commit_transaction` again."""
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException:
            if self._engine.has_open_transaction:
                self.abort_transaction()
            raise

    def partitions_for(self, topic: str) -> set[int]:
        """Returns the topic's partition numbers. Waits for metadata like `send`."""
        self._require_usable()
        queues = self._topics.get(topic)
        if queues is None:
            queues = self._loop.run(self._engine.topic, topic, timeout_ms=self._config.max_block_ms)
        return set(range(len(queues.queues)))

    def metrics(self) -> dict[str, float]:
        """Returns totals and averages since the start, under Kafka's metric names."""
        return self._engine.metrics()

    def __repr__(self) -> str:
        return self._engine.named("Producer")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _choose(self, partitioner: UserPartitioner, topic: str, key: Any, value: Any) -> int | None:
        """Returns the user's choice of a partition. Waits for metadata if the topic is not known."""
        self._require_usable()
        with self._lock:
            queues = self._topics.get(topic)
        infos = self._loop.run(self._engine.infos, topic) if queues is None else queues.infos
        return partitioner.choose(topic, key, value, infos)

    def _append_many(self, *arguments: Any) -> int:
        """Appends nothing: only the compiled core appends many records at once. Returns the position to begin at."""
        start: int = arguments[5]
        return start

    def _send_each(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None,
        partition: int | None,
        headers: Sequence[Header] | None,
    ) -> list[Run]:
        """Sends records one by one, because an interceptor or a partitioner has to see each of them."""
        pairs = zip(values, itertools.repeat(None)) if keys is None else zip(values, keys, strict=True)
        return [
            run_of(self.send(topic, value, key, partition=partition, headers=headers)) for value, key in list(pairs)
        ]

    def _send_record(
        self,
        topic: str,
        partition: int | None,
        record: RawRecord,
        size_bytes: int,
        on_delivery: DeliveryCallback | None,
    ) -> RecordFuture:
        """Ends `send` with a record that is serialized."""
        queues = self._topics.get(topic)
        queue = None
        if queues is not None:
            with self._lock:
                queue = queues.queue_for(partition, record[1], size_bytes)
                if queue is not None:
                    entry = self._append(queue, record, size_bytes, on_delivery)
                    if entry is not None:
                        return RecordFuture(*entry)
        return self._send_slowly(topic, partition, queue, record, size_bytes, on_delivery)

    def _place_packed(self, topic: str, partition: int | None, records: PackedRecords, size_bytes: int) -> BatchResult:
        """Places packed records as a batch. Waits for metadata and memory if necessary."""
        queues = self._topics.get(topic)
        queue = None
        if queues is not None:
            with self._lock:
                queue = queues.queue_for(partition, None, size_bytes)
        deadline_ms = self._engine.monotonic_ms() + self._config.max_block_ms
        found = queue or self._loop.run(self._engine.queue, topic, partition, None, size_bytes)
        place = functools.partial(self._engine.place_packed, found, records)
        return self._with_memory(place, size_bytes, deadline_ms)

    def _send_slowly(
        self,
        topic: str,
        partition: int | None,
        queue: PartitionQueue | None,
        record: RawRecord,
        size_bytes: int,
        on_delivery: DeliveryCallback | None,
    ) -> RecordFuture:
        """Continues `send` if the topic is not known, a new batch is needed, or there is no free memory."""
        self._require_usable()
        if not self._loop.is_current():
            self._engine.calls.raise_exit()
        deadline_ms = self._engine.monotonic_ms() + self._config.max_block_ms
        found = queue or self._loop.run(self._engine.queue, topic, partition, record[1], size_bytes)
        place = functools.partial(self._engine.place, found, record, size_bytes, on_delivery)
        return RecordFuture(*self._with_memory(place, size_bytes, deadline_ms))

    def _with_memory(self, place: Callable[[], T | None], size_bytes: int, deadline_ms: int) -> T:
        """Returns the result of `place`, which is called with the lock held, when there is memory. Raises
        BufferExhaustedError."""
        with self._lock:
            placed = place()
        if placed is None and self._loop.is_current():
            raise self._engine.exhausted(size_bytes, _NO_WAIT)
        if placed is None:
            placed = self._wait_for_memory(place, (deadline_ms - self._engine.monotonic_ms()) / 1000)
        if placed is None:
            raise self._engine.exhausted(size_bytes)
        return placed

    def _wait_for_memory(self, place: Callable[[], T | None], timeout_s: float) -> T | None:
        waiters, waiter = self._engine.accumulator.waiters, object()

        def place_or_join() -> T | None:
            with self._lock:
                if (placed := place()) is None:
                    waiters.add(waiter)
                return placed

        try:
            with self._loop.unlocked():
                return self._room.wait_for(place_or_join, timeout_s)
        finally:
            with self._lock:
                waiters.discard(waiter)

    def _require_usable(self) -> None:
        """Raises IllegalStateError in a forked child, and if the process ends."""
        refuse_at_end()
        if self._process_id != os.getpid():
            raise IllegalStateError("the producer was created before a fork and belongs to the parent process")

    def _refuse_in_callback(self, call: str) -> None:
        if self._loop.is_current():
            raise IllegalStateError(f"{call}() was called inside a callback; it would never return")


if core is not None and not TYPE_CHECKING:
    # The core's `send` takes the place of this one, which it calls for records that need more.
    core.SendPath.send.__doc__ = Producer.send.__doc__
    Producer._send_in_python = Producer.send
    del Producer.send, Producer._append_many
