"""Produce and ProduceStream: record batches into partitions this broker leads.

Kafka's `KafkaApis.handleProduceRequest`. A message that is not a produce request at all (framing, sizes that do
not add up, a partition named twice) is refused as a whole; everything else is decided per partition, in the
body, and does not touch the other partitions. Appending happens here and now, on the event loop. Before it, only a
transaction's first write to a partition waits, for the coordinator, and what was sent here by news of an election that
this broker has not heard of, for its metadata. After it acks=all waits in the purgatory when other replicas are in
sync; when that is full, such a produce is answered REQUEST_TIMED_OUT at once: like after a time-out, its records are
here and may or may not be everywhere.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, NamedTuple

from klamm import tracing
from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode, RecordError
from klamm.model import TopicPartition
from klamm.wire.framed import decode_framed, split_records
from klamm.wire.v1.broker_pb2 import ProducedPartition, ProduceHeader, ProducePartition, ProduceResponse
from klamm_broker import metrics
from klamm_broker.log.partition_log import AppendResult, ShardWriter
from klamm_broker.purgatory.driver import PurgatoryDriver
from klamm_broker.replica.delayed_news import DelayedNews
from klamm_broker.replica.delayed_produce import PendingAppend
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_broker.rpc.append_wait import wait_for_appends
from klamm_broker.rpc.leader_hints import HINTED, leader_nodes
from klamm_broker.rpc.request_memory import RequestMemory
from klamm_broker.rpc.transaction_guards import Guards, TransactionGuards

log = logging.getLogger(__name__)

NEWS_WAIT_MAX_MS = 1_000
"""For metadata that the client is ahead of; after that it is refused."""
ACKS_ALL = -1
ACKS_NONE = 0
_ACKS = (ACKS_ALL, ACKS_NONE, 1)
_NO_PARTITIONS: frozenset[TopicPartition] = frozenset()

_InvalidRequestError = EXCEPTIONS[ErrorCode.INVALID_REQUEST]
_UnknownLeaderEpochError = EXCEPTIONS[ErrorCode.UNKNOWN_LEADER_EPOCH]


class PartitionRecords(NamedTuple):
    """What is to be appended to one partition."""

    topic_partition: TopicPartition
    records: memoryview
    """Nobody looks at them after the answer."""
    current_leader_epoch: int = -1
    """The newest one that the client has heard of."""
    writer: ShardWriter | None = None
    """Set by the owner of the shard that the partition is."""


class Produce(NamedTuple):
    """A produce request, whoever's it is."""

    acks: int
    timeout_ms: int
    transactional_id: str
    """Empty without a transaction."""
    partitions: Sequence[PartitionRecords]
    """Each once."""
    verify_only: bool = False
    """The client has added the partitions to the transaction itself."""


class Produced(NamedTuple):
    """One partition's answer; the names are those of `ProducedPartition`."""

    topic_partition: TopicPartition
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    current_leader: int = -1
    current_leader_epoch: int = -1
    record_errors: Sequence[RecordError] = ()


AnswersInTime = Coroutine[Any, Any, list[Produced]]
"""Something has to be waited for first."""


_Pending = dict[TopicPartition, PendingAppend]
"""What has been appended, and has to wait."""


class ProduceRpc:
    """Handles Produce and ProduceStream."""

    def __init__(
        self,
        replicas: ReplicaManager,
        produces: PurgatoryDriver,
        memory: RequestMemory,
        transactions: TransactionGuards,
    ) -> None:
        self._replicas = replicas
        self._transactions = transactions
        self._produces = produces
        self._memory = memory

    async def produce(self, request: bytes, context: Any) -> ProduceResponse:
        produce = _decode(request)
        try:
            self._memory.take(len(request))
        except BrokerError as error:
            return self._response(self._refuse(produce, error))
        try:
            return await self._respond(produce)
        finally:
            self._memory.give_back(len(request))

    async def produce_stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[ProduceResponse]:
        """The next request is taken when the one before is answered: that is the stream's back-pressure."""
        async for request in requests:
            produce = _decode(request)
            await self._memory.wait_take(len(request))
            try:
                response = await self._respond(produce)
            finally:
                self._memory.give_back(len(request))
            yield response

    async def _respond(self, produce: Produce) -> ProduceResponse:
        answers = self.serve(produce)
        return self._response(answers if isinstance(answers, list) else await answers)

    def _response(self, answers: Sequence[Produced]) -> ProduceResponse:
        return ProduceResponse(
            partitions=[_encode(answer) for answer in answers],
            node_endpoints=leader_nodes(self._replicas.brokers, answers),
        )

    def serve(self, produce: Produce) -> list[Produced] | AnswersInTime:
        """The answers in the order of the partitions, none with acks=0; at once if nothing has to be waited for."""
        if produce.acks not in _ACKS:
            return self._refuse(
                produce, ErrorCode.INVALID_REQUIRED_ACKS.exception(f"acks={produce.acks}; expected -1, 0 or 1")
            )
        if produce.transactional_id or self._awaited(produce):
            return self._serve_in_time(produce)
        return self._append_all(produce, {}, _NO_PARTITIONS)

    async def _serve_in_time(self, produce: Produce) -> list[Produced]:
        unheard_of = await self._hear_of_elections(produce)
        guards = await self._guards_of(produce) if produce.transactional_id else {}
        answers = self._append_all(produce, guards, unheard_of)
        return answers if isinstance(answers, list) else await answers

    async def _hear_of_elections(self, produce: Produce) -> frozenset[TopicPartition]:
        """Those of which this broker has not heard as much as the client, not even after a while."""
        awaited = self._awaited(produce)
        if not awaited or self._produces.is_full:
            return awaited
        wait_ms = min(max(0, produce.timeout_ms), NEWS_WAIT_MAX_MS)
        await self._produces.wait(
            lambda on_done: DelayedNews(lambda: bool(self._awaited(produce)), on_done), awaited, wait_ms
        )
        return self._awaited(produce)

    def _awaited(self, produce: Produce) -> frozenset[TopicPartition]:
        awaits = self._replicas.awaits_epoch
        awaited = [name for name, _, epoch, _ in produce.partitions if epoch > 0 and awaits(name, epoch)]
        return frozenset(awaited) if awaited else _NO_PARTITIONS

    async def _guards_of(self, produce: Produce) -> Guards:
        parts = [(one.topic_partition, one.records) for one in produce.partitions]
        return await self._transactions.of(produce.transactional_id, parts, verify_only=produce.verify_only)

    def _append_all(
        self, produce: Produce, guards: Guards, unheard_of: frozenset[TopicPartition]
    ) -> list[Produced] | AnswersInTime:
        pending: _Pending = {}
        with tracing.span("append"):
            answers = [self._append(one, produce.acks, guards, unheard_of, pending) for one in produce.partitions]
        if produce.acks == ACKS_NONE:
            return []
        return self._settle_in_time(answers, pending, produce.timeout_ms) if pending else answers

    async def _settle_in_time(self, answers: Sequence[Produced], pending: _Pending, timeout_ms: int) -> list[Produced]:
        with tracing.span("replicate"):
            await wait_for_appends(self._produces, list(pending.values()), timeout_ms)
        return [self._settled(answer, pending.get(answer.topic_partition)) for answer in answers]

    def _append(
        self,
        wanted: PartitionRecords,
        acks: int,
        guards: Guards,
        unheard_of: frozenset[TopicPartition],
        pending: _Pending,
    ) -> Produced:
        topic_partition, records, leader_epoch, writer = wanted
        try:
            if topic_partition in unheard_of:
                # Or of a topic that is gone, and this is another one of its name.
                raise _UnknownLeaderEpochError(
                    f"{topic_partition} has no leader epoch {leader_epoch} that this broker knows"
                )
            guard = guards.get(topic_partition)
            if isinstance(guard, BrokerError):
                raise guard
            if writer is not None:
                replica, appended = self._append_for_shard(topic_partition, writer, records, acks)
            else:
                replica, appended = self._replicas.append(topic_partition, records, acks=acks, guard=guard)
        except BrokerError as error:
            return self._failed(topic_partition, error)
        base_offset, last_offset, log_append_time_ms, log_start_offset, is_duplicate = appended
        if not is_duplicate:
            metrics.on_append(topic_partition.topic, len(records), last_offset + 1 - base_offset)
        if acks == ACKS_ALL and last_offset >= replica.high_watermark:
            pending[topic_partition] = PendingAppend(replica, last_offset + 1)
        return Produced(topic_partition, ErrorCode.NONE, "", base_offset, log_append_time_ms, log_start_offset)

    def _append_for_shard(
        self, topic_partition: TopicPartition, writer: ShardWriter, records: memoryview, acks: int
    ) -> tuple[Partition, AppendResult]:
        if acks != ACKS_ALL:
            raise ErrorCode.INVALID_REQUIRED_ACKS.exception(f"acks={acks} of a shard's writer; expected -1")
        return self._replicas.append_as_coordinator(topic_partition, records, writer)

    def _refuse(self, produce: Produce, error: BrokerError) -> list[Produced]:
        failed = [self._failed(one.topic_partition, error) for one in produce.partitions]
        return failed if produce.acks != ACKS_NONE else []

    def _failed(self, topic_partition: TopicPartition, error: BrokerError) -> Produced:
        metrics.on_error("produce", error.code)
        log.debug("produce partition=%s refused: %s", topic_partition, error)
        refused = Produced(topic_partition, error.code, error.message)
        if error.record_errors:
            replica = self._replicas.get(topic_partition)
            log_start_offset = -1 if replica is None else replica.log.log_start_offset
            return refused._replace(log_start_offset=log_start_offset, record_errors=error.record_errors)
        return self._hinted(refused)

    def _settled(self, answer: Produced, pending: PendingAppend | None) -> Produced:
        """The answer after the wait."""
        if pending is None or not pending.code:
            return answer
        return self._hinted(answer._replace(error_code=pending.code, error_message=pending.code.text, base_offset=-1))

    def _hinted(self, answer: Produced) -> Produced:
        if answer.error_code not in HINTED:
            return answer
        leader, leader_epoch = self._replicas.leader_hint(answer.topic_partition)
        return answer._replace(current_leader=leader, current_leader_epoch=leader_epoch)


def _decode(request: bytes) -> Produce:
    """Raises InvalidRequestError for what is not a produce request."""
    header, records = decode_framed(request, ProduceHeader)
    named = {(partition.topic, partition.partition) for partition in header.partitions}
    if len(named) != len(header.partitions):
        raise _InvalidRequestError("a partition is named twice; each may have one part of the records")
    parts = split_records(records, [partition.records_bytes for partition in header.partitions])
    return Produce(
        header.acks,
        header.timeout_ms,
        header.transactional_id,
        [_partition_records(one, part) for one, part in zip(header.partitions, parts, strict=True)],
    )


def _partition_records(partition: ProducePartition, records: memoryview) -> PartitionRecords:
    writer = None
    if partition.HasField("writer"):
        fence = partition.writer
        base_offset = fence.base_offset if fence.HasField("base_offset") else None
        writer = ShardWriter(fence.producer_id, fence.producer_epoch, fence.transaction_version, base_offset)
    topic_partition = TopicPartition(partition.topic, partition.partition)
    return PartitionRecords(topic_partition, records, partition.current_leader_epoch, writer)


def _encode(answer: Produced) -> ProducedPartition:
    encoded = ProducedPartition(
        topic=answer.topic_partition.topic,
        partition=answer.topic_partition.partition,
        base_offset=answer.base_offset,
        log_append_time_ms=answer.log_append_time_ms,
        log_start_offset=answer.log_start_offset,
    )
    if answer.error_code:
        encoded.error_code, encoded.error_message = answer.error_code, answer.error_message
        encoded.current_leader, encoded.current_leader_epoch = answer.current_leader, answer.current_leader_epoch
        for index, message in answer.record_errors:
            encoded.record_errors.add(index=index, message=message)
    return encoded
