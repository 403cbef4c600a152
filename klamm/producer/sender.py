"""Carries batches from the accumulator to the brokers: one task that plans, one short task per request.

The planning task sleeps until something is due. A request holds what is due for one broker, up to
`max.request.size`; at most `max.in.flight.requests.per.connection` are under way to it. Outcomes are handled per
partition:

    no error, or DUPLICATE_SEQUENCE_NUMBER    settled with its offset, or without one
    MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE  sent again in smaller parts, until a single record is at fault
    OUT_OF_ORDER_SEQUENCE_NUMBER,             batch by batch: a new leader may have the first ones only; the one that is
    UNKNOWN_PRODUCER_ID                       at fault under new numbers, like all after it (`sequences.py`)
    single records were refused               batch by batch: only theirs is refused with them (KIP-467)
    the client cannot encode a batch          batch by batch: only that batch fails, and nothing of it is sent
    retriable                                 sent again after retry.backoff.ms; at once with news of a new leader,
                                              which is asked for meanwhile
    any other, or `retries` are used up       settled with the error

With `enable.idempotence` nothing is sent before a broker has given a producer id. If a
batch of a transaction fails, the waiting batches fail with it, and batches in flight are not sent again.

Callbacks run before the futures of their batch are done, so that they have all run when `flush` returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, NamedTuple

from klamm.client_task import client_task
from klamm.cluster.client import KlammClient
from klamm.core import COMPILED_BATCHES
from klamm.errors import (
    BrokerError,
    ClosedError,
    ErrorCode,
    KlammError,
    NoBrokerError,
    RecordError,
    raise_for,
)
from klamm.model import TopicPartition
from klamm.ordered_set import OrderedSet
from klamm.process import PROCESS
from klamm.producer.accumulator import NEVER_MS, Accumulator, PartitionQueue, PendingRequest
from klamm.producer.batch import Batch, Stamp
from klamm.producer.config import ProducerConfig
from klamm.producer.interceptors import InterceptorChain
from klamm.producer.metrics import ProducerMetrics
from klamm.producer.result import outcome_at
from klamm.producer.sequences import ProducerIdAndEpoch, Sequences
from klamm.producer.transaction_state import TransactionState
from klamm.records import encode_batch, seal_batch
from klamm.records.header import Buffer
from klamm.retry import NEWS_MULTIPLIER, Backoff
from klamm.rpc.retrying import Retries
from klamm.wire.v1 import broker_pb2, common_pb2

log = logging.getLogger(__name__)

_NOT_IN_SEQUENCE: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})

QUICK_RETRY_MS: Final = 20
"""The longest pause after CONCURRENT_TRANSACTIONS, in milliseconds. The markers of the previous transaction are being
written then."""

_NO_STAMP: Final = Stamp(producer_id=-1, epoch=-1, base_sequence=-1)


class _Outcome(NamedTuple):
    """The outcome of one partition's part of a request, from the broker or from a failed call."""

    error: Exception | None
    base_offset: int = -1
    log_append_time_ms: int = -1
    leader: int = -1
    leader_epoch: int = -1
    nodes: Sequence[common_pb2.Node] = ()
    """The nodes of leaders that the answer names."""
    is_encoded: bool = True
    """False if the records could not be encoded, so that they were not sent."""


class Sender:
    """Sends the batches of one producer, on the client's loop. `lock` guards the accumulator, which the application's
    threads fill.

    `on_settled` is called on the loop, without the lock, whenever memory may have become free."""

    def __init__(
        self,
        config: ProducerConfig,
        client: KlammClient,
        accumulator: Accumulator,
        lock: threading.RLock,
        *,
        interceptors: InterceptorChain,
        metrics: ProducerMetrics,
        on_settled: Callable[[], object],
        transaction: TransactionState | None = None,
    ) -> None:
        self._config = config
        self._client = client
        self._accumulator = accumulator
        self._lock = lock
        self._interceptors = interceptors
        self._metrics = metrics
        self._on_settled = on_settled
        self._monotonic_ms = PROCESS.get().monotonic_ms
        self._in_flight: Counter[int] = Counter()
        self._due = asyncio.Event()
        self._tasks: OrderedSet[asyncio.Task[None]] = OrderedSet()
        self._stale_topics: set[str] = set()
        self._refreshing = False
        self._news_backoff = Backoff(
            initial_ms=config.retry_backoff_ms, max_ms=config.retry_backoff_max_ms, multiplier=NEWS_MULTIPLIER
        )
        self._transaction = transaction
        is_transactional = transaction is not None
        self._sequences = Sequences(is_transactional=is_transactional) if config.enable_idempotence else None
        self._asking_for_id = False

    def start(self) -> None:
        """Starts the planning task."""
        self._spawn(self._run(), "klamm-producer")

    def wake(self) -> None:
        """Wakes the planning task because a batch is due. Call this on the loop."""
        self._due.set()

    def on_view(self) -> None:
        """Applies a change of the client's view of the cluster. Call this on the loop."""
        with self._lock:
            self._accumulator.end_backoff(self._has_newer_leader)
        self._due.set()

    # Transactions

    def begin_epoch(self, producer: ProducerIdAndEpoch) -> None:
        """Uses another producer epoch for the next transaction. No request of the previous transaction is under way.
        The caller holds the lock."""
        assert self._sequences is not None
        self._sequences.begin(producer)

    def fail_transaction(self, error: Exception) -> None:
        """Notes that the transaction must be aborted, so that nothing more of it is sent. Does nothing if that is known
        already."""
        assert self._transaction is not None
        with self._lock:
            is_news = self._transaction.fail(error)
        if is_news:
            self.abandon_waiting(self._transaction.failure())

    def fail_producer(self, error: Exception) -> None:
        """Notes that the producer can only be closed."""
        assert self._transaction is not None
        with self._lock:
            is_news = self._transaction.fail_fatally(error)
        if is_news:
            self.abandon_waiting(self._transaction.failure())

    def abandon_waiting(self, error: Exception) -> None:
        """Fails the waiting batches with `error`. Batches in flight are not affected."""
        with self._lock:
            abandoned = self._accumulator.abort()
        for batch in abandoned:
            self._settle(batch, _Outcome(error))
        self._on_settled()

    async def stop(self, error: Exception) -> None:
        """Stops the sender. Fails all unsent and in-flight records with `error`."""
        self._abort(error)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A task that is cancelled before its first step does not run its finally clause.
        for queue in self._accumulator.queues_in_flight():
            self._complete(queue, _Outcome(error))

    def _abort(self, error: Exception) -> None:
        with self._lock:
            self._accumulator.close()
        self.abandon_waiting(error)

    # Planning

    async def _run(self) -> None:
        try:
            while True:
                self._due.clear()
                await self._sleep_until(self._send_due())
        except Exception as error:
            # No record would be sent any more. So every `send` must raise this error instead of waiting for ever.
            log.exception("the producer's sender failed")
            self._abort(error)

    def _send_due(self) -> float:
        """Sends all due batches that may be sent now. Returns the time at which the next batch is due."""
        while True:
            limit = 0 if self._lacks_id() else self._config.max_in_flight_requests_per_connection
            now_ms = self._monotonic_ms()
            with self._lock:
                expired = self._accumulator.expire(now_ms)
                drained = self._accumulator.drain(self._leader_of, self._in_flight, limit, now_ms)
            for batch in expired:
                self._settle(batch, _Outcome(self._accumulator.delivery_timeout(batch)))
            if expired:
                self._on_settled()
            self._refresh_metadata(drained.leaderless)
            for request in drained.requests:
                self._stamp(request)
                self._in_flight[request.node_id] += 1
                self._spawn(self._send(request), f"klamm-produce-{request.node_id}")
            if not drained.requests:
                return drained.next_due_ms

    def _lacks_id(self) -> bool:
        """Returns whether the producer must get a producer id before it can send. Requests one if necessary."""
        if self._sequences is None or not self._sequences.needs_id:
            return False
        if self._transaction is None and not self._asking_for_id and not self._accumulator.is_empty:
            self._asking_for_id = True
            self._spawn(self._init_producer_id(self._sequences), "klamm-producer-id")
        return True

    async def _init_producer_id(self, sequences: Sequences) -> None:
        """Requests a producer id from one broker after the other until one answers. Meanwhile records expire after
        delivery.timeout.ms."""
        retries = Retries(self._client.backoff, self._client.rng)
        request = broker_pb2.InitProducerIdRequest(client_id=self._config.client_id)
        while sequences.needs_id:
            try:
                response = await self._client.ask_any_broker(lambda broker: broker.init_producer_id(request))
                raise_for(response.error_code, response.error_message)
                sequences.begin(ProducerIdAndEpoch(response.producer_id, response.producer_epoch))
                log.info("got a producer id producer_id=%d epoch=%d", response.producer_id, response.producer_epoch)
            except KlammError as error:
                level = logging.WARNING if retries.failures % 10 == 4 else logging.INFO
                log.log(level, "could not get a producer id reason=%s", error)
                if not error.retriable:
                    self._abort(error)
                    return
                await retries.pause()
        self._asking_for_id = False
        self._due.set()

    def _stamp(self, request: PendingRequest) -> None:
        for queue, batches in request.parts:
            queue.leader_epoch = self._client.cluster.leader_epoch_of(queue.tp)
            if self._sequences is not None:
                self._sequences.stamp(queue.tp, batches)

    async def _sleep_until(self, due_ms: float) -> None:
        if due_ms == NEVER_MS:
            await self._due.wait()
            return
        # The clock drops fractions of a millisecond. Without the added one, the task would wake too early and plan for
        # nothing.
        delay_s = max(0.0, due_ms + 1 - self._monotonic_ms()) / 1000
        timer = asyncio.get_running_loop().call_later(delay_s, self._due.set)
        try:
            await self._due.wait()
        finally:
            timer.cancel()

    def _leader_of(self, tp: TopicPartition) -> int | None:
        node = self._client.cluster.leader_of(tp)
        return None if node is None else node.node_id

    def _refresh_metadata(self, topics: Iterable[str]) -> None:
        self._stale_topics.update(topics)
        if self._stale_topics and not self._refreshing:
            self._refreshing = True
            self._spawn(self._refresh_stale(), "klamm-producer-metadata")

    async def _refresh_stale(self) -> None:
        """Refreshes the metadata, with backoff, while partitions have no leader, or only the leader that failed."""
        retries = Retries(self._news_backoff, self._client.rng)
        while self._stale_topics:
            topics, self._stale_topics = self._stale_topics, set()
            with contextlib.suppress(KlammError):
                await self._client.refresh_metadata(topics)
            self._due.set()
            await retries.pause()
            with self._lock:
                self._stale_topics |= self._accumulator.topics_awaiting_leader()
        self._refreshing = False

    # One request

    async def _send(self, request: PendingRequest) -> None:
        started_ms = self._monotonic_ms()
        self._metrics.requests_in_flight += 1
        outcomes: dict[TopicPartition, _Outcome] = {}
        failure: Exception = ClosedError("the producer was closed while the request was under way")
        try:
            outcomes = await self._produce(request)
            failure = ErrorCode.UNKNOWN_SERVER_ERROR.exception("the broker's answer lacks the partition")
        except KlammError as error:
            failure = error
        except Exception as error:
            log.exception("produce request to broker=%d failed in the client", request.node_id)
            failure = error
        finally:
            self._in_flight[request.node_id] -= 1
            self._metrics.request_done(self._monotonic_ms() - started_ms)
            for queue, _ in request.parts:
                self._handle(queue, outcomes.get(queue.tp) or _Outcome(failure))
            self._on_settled()
            self._due.set()

    async def _produce(self, request: PendingRequest) -> dict[TopicPartition, _Outcome]:
        header = broker_pb2.ProduceHeader(
            acks=self._config.acks,
            timeout_ms=self._config.request_timeout_ms,
            client_id=self._config.client_id,
            transactional_id="" if self._transaction is None else self._transaction.transactional_id,
        )
        chunks: list[Buffer] = []
        record_count = 0
        unsent: dict[TopicPartition, _Outcome] = {}
        for queue, batches in request.parts:
            try:
                encoded = [self._encode(batch) for batch in batches]
            except Exception as error:
                log.exception("could not encode records, partition=%s", queue.tp)
                unsent[queue.tp] = _Outcome(error, is_encoded=False)
                continue
            size_bytes = sum(map(len, encoded))
            header.partitions.add(
                topic=queue.tp.topic,
                partition=queue.tp.partition,
                records_bytes=size_bytes,
                current_leader_epoch=max(0, queue.leader_epoch),
            )
            chunks += encoded
            record_count += sum(len(batch.records) for batch in batches)
        if not chunks:
            return unsent
        self._metrics.request_sent(batches=len(chunks), records=record_count, size_bytes=sum(map(len, chunks)))
        response = await self._client.produce(request.node_id, header, chunks)
        if response.throttle_time_ms:
            self._rest(request.node_id, response.throttle_time_ms)
        nodes = tuple(response.node_endpoints)
        told = {
            TopicPartition(partition.topic, partition.partition): _outcome(partition, nodes)
            for partition in response.partitions
        }
        if not self._config.acks:
            # The broker names only the partitions that failed.
            told = {queue.tp: told.get(queue.tp, _Outcome(None)) for queue, _ in request.parts}
        return told | unsent

    def _rest(self, node_id: int, throttle_ms: int) -> None:
        """Sends no requests to a broker while it throttles this client. To do so, counts the maximum number of requests
        as in flight for that time."""
        taken = self._config.max_in_flight_requests_per_connection
        self._in_flight[node_id] += taken
        asyncio.get_running_loop().call_later(throttle_ms / 1000, self._end_rest, node_id, taken)

    def _end_rest(self, node_id: int, taken: int) -> None:
        self._in_flight[node_id] -= taken
        self._due.set()

    def _encode(self, batch: Batch) -> Buffer:
        if batch.encoded is not None:
            return batch.encoded
        producer_id, epoch, base_sequence = batch.stamp or _NO_STAMP
        encode = seal_batch if isinstance(batch.records, COMPILED_BATCHES) else encode_batch
        encoded = encode(
            batch.records,
            compression=self._config.compression_type,
            compression_level=self._config.compression_level,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=base_sequence,
            is_transactional=self._transaction is not None,
        )
        if isinstance(encoded, bytes):
            # A memoryview is the compiled batch itself, whose memory becomes free sooner without it.
            batch.encoded = encoded
        return encoded

    def _handle(self, queue: PartitionQueue, outcome: _Outcome) -> None:
        error = outcome.error
        if error is None:
            self._complete(queue, outcome)
        elif isinstance(error, BrokerError) and error.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._complete(queue, outcome._replace(error=None, base_offset=-1))
        elif isinstance(error, BrokerError) and error.code in _NOT_IN_SEQUENCE and self._sequences is not None:
            self._put_in_sequence(queue, outcome, error, self._sequences)
        elif isinstance(error, BrokerError) and error.code in _TOO_LARGE:
            with self._lock:
                is_split = self._accumulator.split(queue)
            self._metrics.splits += is_split
            if not is_split:
                self._complete(queue, outcome)
        elif self._is_of_one_batch(outcome) and len(queue.in_flight) > 1 and not self._is_lost:
            with self._lock:
                self._accumulator.split(queue)
        elif isinstance(error, KlammError) and error.retriable and not self._is_lost:
            self._retry(queue, outcome, error)
        else:
            self._complete(queue, outcome)

    @staticmethod
    def _is_of_one_batch(outcome: _Outcome) -> bool:
        """Returns True if the error belongs to one of the batches in a partition's request, and not to the others."""
        error = outcome.error
        return not outcome.is_encoded or (isinstance(error, BrokerError) and bool(error.record_errors))

    def _put_in_sequence(
        self, queue: PartitionQueue, outcome: _Outcome, error: BrokerError, sequences: Sequences
    ) -> None:
        with self._lock:
            if len(queue.in_flight) > 1:
                self._accumulator.split(queue)
                return
        if self._transaction is not None:
            self._complete(queue, outcome)
            return
        with self._lock:
            sequences.restart(queue.tp, [*queue.in_flight, *queue.batches])
        log.warning("partition=%s continues in a new producer epoch reason=%s", queue.tp, error)
        self._retry(queue, outcome, error)

    def _retry(self, queue: PartitionQueue, outcome: _Outcome, error: KlammError) -> None:
        self._client.update_leader(queue.tp, outcome.leader, outcome.leader_epoch, outcome.nodes)
        moved = self._has_newer_leader(queue)
        is_stale = isinstance(error, NoBrokerError) or getattr(error, "refresh_metadata", False)
        if is_stale and not moved:
            self._refresh_metadata([queue.tp.topic])
        attempts = queue.in_flight[0].attempts
        pause_ms = 0 if moved else int(self._client.backoff.delay_ms(attempts, self._client.rng))
        if isinstance(error, BrokerError) and error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
            pause_ms = min(pause_ms, QUICK_RETRY_MS)
        with self._lock:
            exhausted = self._accumulator.retry(
                queue,
                error,
                retry_at_ms=self._monotonic_ms() + pause_ms,
                retries_max=self._config.retries,
                awaits_leader=is_stale and not moved,
            )
        self._metrics.retries += 1
        log.info("partition=%s attempt=%d retry_in_ms=%d reason=%s", queue.tp, attempts, pause_ms, error)
        for batch in exhausted:
            self._settle(batch, outcome)

    @property
    def _is_lost(self) -> bool:
        """True if the transaction will be aborted, whatever the outcome of its records is."""
        return self._transaction is not None and self._transaction.is_lost

    def _has_newer_leader(self, queue: PartitionQueue) -> bool:
        """Returns whether the partition has a newer leader than the one of its last request."""
        cluster = self._client.cluster
        return cluster.leader_epoch_of(queue.tp) > queue.leader_epoch and cluster.leader_of(queue.tp) is not None

    def _complete(self, queue: PartitionQueue, outcome: _Outcome) -> None:
        """Settles the batches of one partition's request. Their offsets follow one another."""
        with self._lock:
            batches = self._accumulator.complete(queue)
        if outcome.error is None and self._sequences is not None:
            self._sequences.on_written(queue.tp)
        for batch in batches:
            self._settle(batch, outcome)
            if outcome.base_offset >= 0:
                outcome = outcome._replace(base_offset=outcome.base_offset + len(batch.records))

    def _settle(self, batch: Batch, outcome: _Outcome) -> None:
        if batch.is_settled:
            return
        batch.is_settled = True
        if outcome.error is None:
            self._metrics.records_acknowledged += len(batch.records)
        else:
            self._metrics.records_failed += len(batch.records)
            if self._sequences is not None:
                self._sequences.on_failed(batch)
            if self._transaction is not None:
                self.fail_transaction(outcome.error)
        parts = batch.outcomes(outcome.base_offset, outcome.log_append_time_ms, outcome.error)
        if self._interceptors:
            for index in range(batch.start, batch.start + len(batch.records)):
                part = outcome_at(parts, index)
                metadata = None if part.error else batch.result.metadata(index, part)
                self._interceptors.on_acknowledgement(metadata, part.error)
        for index, callback in batch.callbacks:
            batch.result.deliver(index, outcome_at(parts, index), callback)
        batch.result.settle(*parts)

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        task = client_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _outcome(message: broker_pb2.ProducedPartition, nodes: Sequence[common_pb2.Node]) -> _Outcome:
    code = ErrorCode.of(message.error_code)
    error = None if code is ErrorCode.NONE else code.exception(message.error_message)
    if error is not None and message.record_errors:
        error.record_errors = tuple(
            RecordError(record_error.index, record_error.message) for record_error in message.record_errors
        )
    return _Outcome(
        error,
        message.base_offset,
        message.log_append_time_ms,
        message.current_leader,
        message.current_leader_epoch,
        nodes,
    )
