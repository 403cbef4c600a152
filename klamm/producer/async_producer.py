"""The asyncio Producer: the same engine on the caller's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, Unpack

from klamm.batches import PreparedPart
from klamm.core import core, new_lock
from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.home_loop import HomeLoop
from klamm.model import TopicPartition
from klamm.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from klamm.producer.accumulator import PartitionQueue
from klamm.producer.config import ProducerConfig
from klamm.producer.engine import ProducerEngine
from klamm.producer.future import AsyncManyFuture, AsyncRecordFuture, Run, run_of, until_done
from klamm.producer.intake import MANY_AT_ONCE, Header, Intake, check_partition
from klamm.producer.record import ProducerRecord, RecordMetadata
from klamm.producer.result import BatchResult, DeliveryCallback
from klamm.producer.user_partitioner import UserPartitioner
from klamm.records import PackedRecords, RawRecord
from klamm.type_variables import KeyT, ValueT

if TYPE_CHECKING:
    from klamm.producer.setting_types import ProducerSettings

_YIELD_INTERVAL_MS: Final = 5
"""A caller that sends in a tight loop yields to the event loop at this interval, in ms. A shorter interval would
make smaller requests."""
_ARROW_BYTES: Final = 2 * 1024 * 1024
"""The bytes of rows that `send_arrow` encodes together. Other tasks wait meanwhile."""


class _SendPath:
    """The base class of an AsyncProducer that sends every record in Python."""


if core is not None and not TYPE_CHECKING:
    _SendPath = core.AsyncSendPath


class AsyncProducer(_SendPath, Generic[KeyT, ValueT]):
    """The Producer of one event loop: `async with AsyncProducer(...) as producer`. Create it on that loop.

    `send` returns as soon as the record is buffered. Await its result to wait for the acknowledgement."""

    def __init__(
        self, config: Mapping[str, Any] | None = None, /, **settings: Unpack[ProducerSettings[KeyT, ValueT]]
    ) -> None:
        self._home = HomeLoop("AsyncProducer")  # Raises here without a running loop, before anything is created.
        self._config = ProducerConfig.parse(config, **settings)
        self._intake = Intake(self._config)
        self._room = asyncio.Event()
        self._engine = ProducerEngine(
            self._config, new_lock(), call_on_loop=lambda function: function(), on_settled=self._room.set
        )
        self._interceptors = self._engine.interceptors if self._config.interceptor_classes else None
        self._yielded_ms = self._engine.monotonic_ms()
        if core is not None and not TYPE_CHECKING:
            self._begin_core(self._engine, self._intake, not self._interceptors and self._engine.partitioner is None)
            self._begin_on_loop(asyncio.get_running_loop())
        self._engine.start()
        self._engine.close_if_forgotten(self, asyncio.get_running_loop(), "AsyncProducer")

    async def send(
        self,
        topic: str,
        value: ValueT | None = None,
        key: KeyT | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> AsyncRecordFuture:
        """Buffers one record. Waits for metadata and memory if necessary. The arguments and errors are those of
        `Producer.send`."""
        self._home.check()
        if self._interceptors:
            topic, value, key, partition, timestamp_ms, headers = self._interceptors.on_send(
                ProducerRecord(topic, value, key, partition, timestamp_ms, headers)
            )
        if partition is not None:
            check_partition(partition)
        record, size_bytes = self._intake.prepare(topic, value, key, timestamp_ms, headers)
        if self._engine.partitioner is not None and partition is None:
            partition = await self._choose(self._engine.partitioner, topic, key, value)
        return await self._send_slowly(topic, partition, None, record, size_bytes, on_delivery)

    async def _send_slowly(
        self,
        topic: str,
        partition: int | None,
        queue: PartitionQueue | None,
        record: RawRecord,
        size_bytes: int,
        on_delivery: DeliveryCallback | None,
    ) -> AsyncRecordFuture:
        """Ends `send` with a record that is serialized. Waits for metadata and memory if necessary."""
        deadline_ms = self._engine.monotonic_ms() + self._config.max_block_ms
        queue = queue or await self._queue(topic, partition, record[1], size_bytes)
        while True:
            with self._engine.lock:
                entry = self._engine.place(queue, record, size_bytes, on_delivery)
            if entry is not None:
                break
            await self._wait_for_memory(size_bytes, deadline_ms)
        result, index = entry
        if not index:
            self._engine.calls.raise_exit()
            await self._yield_now_and_then()
        return AsyncRecordFuture(result, index)

    async def _place_packed(
        self, topic: str, partition: int | None, records: PackedRecords, size_bytes: int
    ) -> BatchResult:
        """Places packed records as a batch. Waits for metadata and memory if necessary."""
        deadline_ms = self._engine.monotonic_ms() + self._config.max_block_ms
        queue = await self._queue(topic, partition, None, size_bytes)
        while True:
            with self._engine.lock:
                result = self._engine.place_packed(queue, records)
            if result is not None:
                self._engine.calls.raise_exit()
                return result
            await self._wait_for_memory(size_bytes, deadline_ms)

    def _place_now(
        self,
        topic: str,
        partition: int | None,
        queue: PartitionQueue | None,
        record: RawRecord,
        size_bytes: int,
        on_delivery: DeliveryCallback | None,
    ) -> AsyncRecordFuture:
        """Ends `send_now` with a record that is serialized."""
        queues = self._engine.topics.get(topic)
        if queue is None and queues is not None:
            queue = queues.queue_for(partition, record[1], size_bytes)
        if queue is None:
            raise EXCEPTIONS[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION](
                f"topic {topic!r}, partition {partition}: not known yet; await partitions_for({topic!r}) before"
                " send_now"
            )
        with self._engine.lock:
            entry = self._engine.place(queue, record, size_bytes, on_delivery)
        if entry is None:
            raise self._engine.exhausted(size_bytes, "send_now does not wait: await send, or flush first")
        return AsyncRecordFuture(*entry)

    def _append_many(self, *arguments: Any) -> int:
        """Appends nothing: only the compiled core appends many records at once. Returns the position to begin at."""
        start: int = arguments[5]
        return start

    async def _yield_now_and_then(self) -> None:
        """Lets other tasks run if this producer has kept the event loop for a while."""
        if self._engine.monotonic_ms() > self._yielded_ms + _YIELD_INTERVAL_MS:
            await asyncio.sleep(0)
            self._yielded_ms = self._engine.monotonic_ms()

    def send_now(
        self,
        topic: str,
        value: ValueT | None = None,
        key: KeyT | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> AsyncRecordFuture:
        """Buffers one record without waiting, so that a function that is no coroutine can send.

        The arguments and errors are those of `Producer.send`. Also raises BufferExhaustedError if there is no memory
        for the record now, and UnknownTopicOrPartitionError if the producer does not know the topic yet: await
        `partitions_for(topic)` once before."""
        self._home.check()
        if self._interceptors:
            topic, value, key, partition, timestamp_ms, headers = self._interceptors.on_send(
                ProducerRecord(topic, value, key, partition, timestamp_ms, headers)
            )
        if partition is not None:
            check_partition(partition)
        record, size_bytes = self._intake.prepare(topic, value, key, timestamp_ms, headers)
        queues = self._engine.topics.get(topic)
        if self._engine.partitioner is not None and partition is None and queues is not None:
            partition = self._engine.partitioner.choose(topic, key, value, queues.infos)
        return self._place_now(topic, partition, None, record, size_bytes, on_delivery)

    async def send_many(
        self,
        topic: str,
        values: Iterable[ValueT | None],
        *,
        keys: Iterable[KeyT | None] | None = None,
        partition: int | None = None,
        headers: Sequence[Header] | None = None,
    ) -> AsyncManyFuture:
        """Buffers many records. This costs less than a `send` for each of them. Other tasks run while it buffers.

        The arguments and errors are those of `Producer.send_many`."""
        self._home.check()
        if self._interceptors or self._engine.partitioner is not None:
            pairs = zip(values, itertools.repeat(None)) if keys is None else zip(values, keys, strict=True)
            return AsyncManyFuture(
                [
                    run_of(await self.send(topic, value, key, partition=partition, headers=headers))
                    for value, key in list(pairs)
                ]
            )
        if partition is not None:
            check_partition(partition)
        many = self._intake.prepare_many(topic, values, keys, headers)
        runs: list[Run] = []
        at, count = 0, len(many.values)
        while at < count:
            stop = min(count, at + MANY_AT_ONCE)
            at = self._append_many(topic, many.values, many.keys, partition, many.headers, at, stop, runs)
            if at < stop:
                runs.append(run_of(await self._send_slowly(topic, partition, None, *many.record(at), None)))
                at += 1
            await self._yield_now_and_then()
        return AsyncManyFuture(runs)

    async def send_arrow(self, topic: str, data: Any, *, partition: int | None = None) -> AsyncManyFuture:
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
        self._home.check()
        engine = self._engine
        table = engine.arrow_table(topic, data, partition)
        runs: list[Run] = []
        for rows in table.portions(_ARROW_BYTES):
            queues = engine.topics.get(topic) or await engine.topic(topic, timeout_ms=self._config.max_block_ms)
            batches = table.pack(rows, len(queues.queues), engine.partitioner, queues.infos)
            sizes = [self._intake.check_packed(topic, batch.records) for batch in batches]
            for batch, size_bytes in zip(batches, sizes, strict=True):
                result = await self._place_packed(topic, batch.partition, batch.records, size_bytes)
                runs.append([result, 0, len(batch.records) - 1])
            await self._yield_now_and_then()
        return AsyncManyFuture(runs)

    async def send_and_wait(self, topic: str, value: Any = None, key: Any = None, **options: Any) -> RecordMetadata:
        """Sends one record as `send` does, and waits for its acknowledgement."""
        return await (await self.send(topic, value, key, **options))

    async def flush(self) -> None:
        """Sends all records that are buffered now, and waits until all of them are acknowledged or have failed."""
        self._home.check()
        with self._engine.lock:
            results = self._engine.accumulator.flush()
        await asyncio.gather(*map(until_done, results))
        self._engine.calls.raise_exit()

    async def close(self, timeout: float | None = None) -> None:
        """Closes the producer. Sends buffered records for at most `timeout` seconds; records that are unsent then
        fail.
        """
        self._home.check()
        await self._engine.close(timeout)
        self._engine.calls.raise_exit()

    async def init_transactions(self, transactional_id: str | None = None) -> None:
        """Fences earlier producers of this `transactional.id` and ends their transactions.

        Call it once, before the first transaction. Like the other methods of transactions, it waits for at most
        `max.block.ms`. After a RequestTimedOutError the outcome is unknown: call the method again. With
        `transactional_id`, the producer continues under that id, for a transaction that was prepared
        (`prepare_transaction`). Raises IllegalStateError out of turn, and FatalProducerError if the producer cannot be
        used any more."""
        self._home.check()
        await self._engine.transactions.initialize(transactional_id)

    async def begin_transaction(self) -> None:
        """Begins a transaction: all records sent from now on are part of it. Raises the errors of
        `init_transactions`.
        """
        self._home.check()
        self._engine.transactions.begin()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Commits the offsets that a consumer has read, as part of the transaction (KIP-447).

        offsets: the next offset to read of each partition. group: `consumer.group_metadata()`, taken after the poll
        that returned the records. The consumer itself must not commit (`enable.auto.commit`). Raises the errors of
        `commit_transaction`. After a failure the transaction must be aborted."""
        self._home.check()
        await self._engine.transactions.send_offsets(offsets, group)

    async def commit_transaction(self) -> None:
        """Sends all buffered records and commits the transaction.

        Raises AbortableTransactionError if a part of the transaction failed, which must then be aborted. Also raises
        the errors of `init_transactions`."""
        self._home.check()
        await self._engine.transactions.commit()

    async def prepare_transaction(self, run_id: str, batch_id: int) -> PreparedPart | None:
        """Sends all buffered records and prepares the transaction, so that a batch ledger decides whether it commits
        (`klamm.batches`).

        The transactional.id must be that of a part of the ledger, and the run must have registered. Returns the part
        that the ledger's decision names, or None if no records were written. Before its next transaction the producer
        must call `init_transactions` again, which aborts an undecided transaction. Raises RunFencedError,
        BatchRewoundError or BatchAbortedError if the run's work on the batch has ended. Also raises the errors of
        `commit_transaction`."""
        self._home.check()
        return await self._engine.transactions.prepare(run_id, batch_id)

    async def abort_transaction(self) -> None:
        """Aborts the transaction. Its buffered records are not sent. Raises the errors of `init_transactions`."""
        self._home.check()
        await self._engine.transactions.abort()

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Begins a transaction for `async with producer.transaction(): ...`. Commits it at the end, or aborts it after
        an exception.

        The exception of the block, or of the commit, is raised after the abort. A commit that timed out is not aborted:
        call `commit_transaction` again."""
        await self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except BaseException:
            if self._engine.has_open_transaction:
                await self.abort_transaction()
            raise

    async def partitions_for(self, topic: str) -> set[int]:
        """Returns the topic's partition numbers. Waits for metadata like `send`."""
        self._home.check()
        queues = self._engine.topics.get(topic)
        if queues is None:
            queues = await self._engine.topic(topic, timeout_ms=self._config.max_block_ms)
        return set(range(len(queues.queues)))

    def metrics(self) -> dict[str, float]:
        """Returns totals and averages since the start, under Kafka's metric names."""
        return self._engine.metrics()

    def __repr__(self) -> str:
        return self._engine.named("AsyncProducer")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _choose(self, partitioner: UserPartitioner, topic: str, key: Any, value: Any) -> int | None:
        """Returns the user's choice of a partition. Waits for metadata if the topic is not known."""
        queues = self._engine.topics.get(topic)
        infos = await self._engine.infos(topic) if queues is None else queues.infos
        return partitioner.choose(topic, key, value, infos)

    async def _queue(self, topic: str, partition: int | None, key: bytes | None, size_bytes: int) -> PartitionQueue:
        queues = self._engine.topics.get(topic)
        queue = None if queues is None else queues.queue_for(partition, key, size_bytes)
        return queue or await self._engine.queue(topic, partition, key, size_bytes)

    async def _wait_for_memory(self, size_bytes: int, deadline_ms: int) -> None:
        """Waits until some memory is free. Raises BufferExhaustedError at the deadline."""
        accumulator = self._engine.accumulator
        self._room.clear()
        waiter = object()
        accumulator.waiters.add(waiter)
        self._engine.wake()
        try:
            async with asyncio.timeout(max(0, deadline_ms - self._engine.monotonic_ms()) / 1000):
                await self._room.wait()
        except TimeoutError:
            raise self._engine.exhausted(size_bytes) from None
        finally:
            accumulator.waiters.discard(waiter)


if core is not None and not TYPE_CHECKING:
    # The core's `send` takes the place of this one, which it calls for records that need more.
    core.AsyncSendPath.send.__doc__ = AsyncProducer.send.__doc__
    core.AsyncSendPath.send_now.__doc__ = AsyncProducer.send_now.__doc__
    AsyncProducer._send_in_python = AsyncProducer.send
    AsyncProducer._send_now_in_python = AsyncProducer.send_now
    del AsyncProducer.send, AsyncProducer.send_now, AsyncProducer._append_many
