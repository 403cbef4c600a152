"""The common part of both producers: client, accumulator and sender on one loop, and the known topics.

`lock` guards the accumulator and `topics`. Some methods require that the caller holds it, as their docstrings say. The
coroutines run on the loop and acquire it themselves.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from klamm.arrow.extra import require_packages
from klamm.client_task import client_task
from klamm.cluster.client import KlammClient
from klamm.cluster.metadata import ClusterView
from klamm.errors import (
    EXCEPTIONS,
    BufferExhaustedError,
    ClosedError,
    ErrorCode,
    IllegalStateError,
    raise_for,
)
from klamm.failure_domains import nearness
from klamm.forgotten import close_if_forgotten
from klamm.partitioner import (
    BuiltInPartitioner,
    DefaultPartitioner,
    PartitionInfo,
    RandomPartitioner,
    RoundRobinPartitioner,
)
from klamm.process import PROCESS
from klamm.producer.accumulator import Accumulator, PartitionQueue, TopicQueues
from klamm.producer.config import ProducerConfig
from klamm.producer.future import until_done
from klamm.producer.intake import check_partition, check_topic_name
from klamm.producer.interceptors import InterceptorChain
from klamm.producer.metrics import ProducerMetrics
from klamm.producer.result import BatchResult, DeliveryCallback
from klamm.producer.sender import Sender
from klamm.producer.transaction_manager import TransactionManager
from klamm.producer.transaction_state import TransactionState
from klamm.producer.user_calls import UserCalls
from klamm.producer.user_partitioner import UserPartitioner, partition_infos
from klamm.records import PackedRecords, RawRecord

if TYPE_CHECKING:
    from klamm.producer.arrow_table import ArrowTable


class ProducerEngine:
    """The parts of a producer behind `send`: accumulator, sender and transactions.

    `call_on_loop` has to call a function on the event loop. Any thread may call it, with the lock held. `on_settled` is
    called on the event loop when memory may have become free. Neither may refer to the Producer, so that the garbage
    collector can find a Producer that was forgotten."""

    def __init__(
        self,
        config: ProducerConfig,
        lock: threading.RLock,
        *,
        call_on_loop: Callable[[Callable[[], object]], object],
        on_settled: Callable[[], object],
    ) -> None:
        self.config = config
        self.lock = lock
        self.monotonic_ms = PROCESS.get().monotonic_ms
        """The clock of all deadlines of this producer, in milliseconds."""
        self.topics: dict[str, TopicQueues] = {}
        self.calls = UserCalls()
        self.interceptors = InterceptorChain(config.interceptor_classes, self.calls)
        chosen = config.partitioner_class
        self.partitioner = None if isinstance(chosen, str) else UserPartitioner(chosen, self.calls)
        """The user's partitioner, or None without one."""
        self.accumulator = Accumulator(config, lambda: call_on_loop(self.wake), self.calls)
        self._rng = PROCESS.get().make_rng()
        self._metrics = ProducerMetrics()
        self._client = KlammClient(config, allow_auto_topic_creation=True, rng=self._rng)
        self._client.on_change(self._on_change)
        self.transaction_state = None if config.transactional_id is None else TransactionState(config.transactional_id)
        """The state of the open transaction, or None without `transactional.id`."""
        self._sender = Sender(
            config,
            self._client,
            self.accumulator,
            self.lock,
            interceptors=self.interceptors,
            metrics=self._metrics,
            on_settled=on_settled,
            transaction=self.transaction_state,
        )
        self._transactions: TransactionManager | None = None
        self.append = self.accumulator.append
        """The accumulator's `append`. Outside of a transaction it raises as `TransactionState.require_open`."""
        if self.transaction_state is not None:
            self.append = self._append_in_transaction
            self._transactions = TransactionManager(
                config, self._client, self.accumulator, self._sender, self.transaction_state, self.lock
            )
        self._closing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the sender. Call this once, on the loop."""
        self._sender.start()

    def wake(self) -> None:
        """Wakes the sender because a batch is due. Call this on the loop."""
        self._sender.wake()

    def place(
        self, queue: PartitionQueue, record: RawRecord, size_bytes: int, on_delivery: DeliveryCallback | None
    ) -> tuple[BatchResult, int] | None:
        """Appends the record, to a new batch if necessary. Returns None if the memory is used up. The caller holds the
        lock.

        Raises ClosedError when the producer is closed, and as `append`."""
        while (entry := self.append(queue, record, size_bytes, on_delivery)) is None:
            if not self.accumulator.open_batch(queue, size_bytes, self.monotonic_ms()):
                return None
        return entry

    def place_packed(self, queue: PartitionQueue, records: PackedRecords) -> BatchResult | None:
        """Places packed records as a batch of their own, as `place` does with one record."""
        if self.transaction_state is not None:
            self.transaction_state.require_open("send_packed")
        return self.accumulator.append_packed(queue, records, self.monotonic_ms())

    def arrow_table(self, topic: str, data: Any, partition: int | None) -> ArrowTable:
        """Returns the data of `send_arrow`, checked. Raises the errors of its arguments, ImportError without pyarrow,
        and IllegalStateError if serializers or interceptors would not see the records."""
        check_topic_name(topic)
        if partition is not None:
            check_partition(partition)
        config = self.config
        for name, setting in (
            ("key.serializer", config.key_serializer),
            ("value.serializer", config.value_serializer),
            ("interceptor.classes", config.interceptor_classes or None),
        ):
            if setting is not None:
                raise IllegalStateError(f"send_arrow: {name} would not see these records; use a producer without it")
        require_packages("send_arrow")
        from klamm.producer.arrow_table import ArrowTable

        return ArrowTable(config, topic, data, partition)

    @property
    def transactions(self) -> TransactionManager:
        """The transactions of this producer. Raises IllegalStateError without transactional.id."""
        if self._transactions is None:
            raise IllegalStateError("the producer has no transactional.id, and so no transactions")
        return self._transactions

    @property
    def has_open_transaction(self) -> bool:
        """True while a transaction is neither committed nor aborted."""
        return self.transaction_state is not None and self.transaction_state.is_open

    def exhausted(self, size_bytes: int, why_at_once: str = "") -> BufferExhaustedError:
        """Returns the error for a record for which `place` found no memory. `why_at_once` says why the caller has not
        waited for `max.block.ms`."""
        waited = "" if why_at_once else f" within max.block.ms={self.config.max_block_ms}"
        advice = f". {why_at_once}" if why_at_once else ""
        return BufferExhaustedError(
            f"no room for {size_bytes} bytes{waited}: {self.accumulator.available_bytes} of"
            f" buffer.memory={self.config.buffer_memory} bytes are free{advice}"
        )

    async def topic(self, name: str, partition: int = 0, *, timeout_ms: int) -> TopicQueues:
        """Returns the topic as soon as the metadata has that partition.

        Raises InvalidTopicError. After `timeout_ms` it raises the error that the metadata still has:
        UnknownTopicOrPartitionError, NoBrokerError and so on."""
        check_topic_name(name)

        async def look_up() -> TopicQueues:
            view = await self._client.refresh_metadata([name])
            raise_for(view.topic_errors.get(name, 0), f"topic {name!r}")
            with self.lock:
                topic = self._update_topic(view, name)
            if partition >= len(topic.queues):
                raise EXCEPTIONS[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION](
                    f"topic {name!r} has {len(topic.queues)} partition(s); there is no partition {partition}"
                )
            return topic

        return await self._client.retrying(look_up, timeout_ms=timeout_ms)

    async def queue(self, topic: str, partition: int | None, key: bytes | None, size_bytes: int) -> PartitionQueue:
        """Returns the queue for a record whose topic or partition was not known yet. Raises the errors of `topic`."""
        queues = await self.topic(topic, partition or 0, timeout_ms=self.config.max_block_ms)
        with self.lock:
            queue = queues.queue_for(partition, key, size_bytes)
        assert queue is not None, (topic, partition)
        return queue

    async def infos(self, topic: str) -> Sequence[PartitionInfo]:
        """Returns the topic's partitions as the user's partitioner sees them. Raises the errors of `topic`."""
        return (await self.topic(topic, timeout_ms=self.config.max_block_ms)).infos

    def named(self, client: str) -> str:
        """Returns the text for the producer's `repr`."""
        transactional = [f"transactional.id={self.config.transactional_id}"] if self.config.transactional_id else []
        return self.config.named(client, *transactional, *(["closed"] if self._closing is not None else []))

    def close_if_forgotten(self, producer: object, loop: asyncio.AbstractEventLoop, kind: str) -> None:
        """Closes the engine on `loop` when the garbage collector finds `producer`. Sends buffered records first."""
        close_if_forgotten(
            producer,
            loop,
            f"{kind} client.id={self.config.client_id}",
            is_closed=lambda: self._closing is not None,
            close=functools.partial(self.close, None),
            unfinished=self._unfinished,
        )

    async def close(self, timeout_s: float | None) -> None:
        """Closes the producer. Sends buffered records for at most `timeout_s` seconds; records that are unsent then
        fail."""
        if self._closing is None:
            self._closing = client_task(self._close(timeout_s), name="klamm-producer-close")
        await asyncio.shield(self._closing)

    def metrics(self) -> dict[str, float]:
        """Returns totals since the start, under Kafka's metric names."""
        return {
            **self._metrics.snapshot(),
            "buffer-total-bytes": self.config.buffer_memory,
            "buffer-available-bytes": self.accumulator.available_bytes,
            "waiting-threads": len(self.accumulator.waiters),
        }

    def _append_in_transaction(
        self, queue: PartitionQueue, record: RawRecord, size_bytes: int, on_delivery: DeliveryCallback | None
    ) -> tuple[BatchResult, int] | None:
        assert self.transaction_state is not None
        self.transaction_state.require_open("send")
        return self.accumulator.append(queue, record, size_bytes, on_delivery)

    def _unfinished(self) -> str:
        count = self.accumulator.unacknowledged_count()
        return f"{count} record(s) were not acknowledged, and are lost if the event loop ends now" if count else ""

    async def _close(self, timeout_s: float | None) -> None:
        try:
            await self._close_parts(timeout_s)
        finally:
            if self.partitioner is not None:
                self.partitioner.close()

    async def _close_parts(self, timeout_s: float | None) -> None:
        if self._transactions is not None:
            await self._transactions.close(timeout_s)
        with self.lock:
            self.accumulator.close()
            results = self.accumulator.flush()
        waiters = [until_done(result) for result in results]
        if waiters:
            await asyncio.wait(waiters, timeout=timeout_s)
        await self._sender.stop(ClosedError("the producer was closed before the record was sent"))
        await self._client.close()

    def _on_change(self, before: ClusterView, after: ClusterView) -> None:
        with self.lock:
            for name in list(self.topics):
                if name in after.topics:
                    self._update_topic(after, name)
                else:
                    del self.topics[name]
        self._sender.on_view()

    def _update_topic(self, view: ClusterView, name: str) -> TopicQueues:
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = TopicQueues(name, self._partitioner(), self.accumulator.queue_of)
        topic.update(len(view.partitions_of(name)), self._preferred(view, name))
        if self.partitioner is not None:
            topic.infos = partition_infos(view, name)
        return topic

    def _preferred(self, view: ClusterView, name: str) -> Sequence[int]:
        available = view.available_partitions(name)
        if self.config.partitioner_rack_aware:
            near = [
                nearness(self.config.client_rack or "", view.brokers[partition.leader].rack) for partition in available
            ]
            nearest = max(near, default=0)
            # If no leader is near, all are equally far.
            available = tuple(p for p, level in zip(available, near, strict=True) if level == nearest)
        return [partition.partition for partition in available]

    def _partitioner(self) -> BuiltInPartitioner:
        match self.config.partitioner_class:
            case "round_robin":
                return RoundRobinPartitioner()
            case "random":
                return RandomPartitioner(rng=self._rng)
            case _:
                return DefaultPartitioner(ignore_keys=self.config.partitioner_ignore_keys, rng=self._rng)
