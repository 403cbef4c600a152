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
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm.wire.framed import decode_framed, split_records
from klamm.wire.v1.broker_pb2 import (
    ProducedPartition,
    ProduceHeader,
    ProducePartition,
    ProduceResponse,
    WriterFence,
)
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

_InvalidRequestError = EXCEPTIONS[ErrorCode.INVALID_REQUEST]
_UnknownLeaderEpochError = EXCEPTIONS[ErrorCode.UNKNOWN_LEADER_EPOCH]


class _Outcome(NamedTuple):
    """One partition's answer, and what it still waits for."""

    answer: ProducedPartition
    pending: PendingAppend | None


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
        header, parts = _decode(request)
        try:
            self._memory.take(len(request))
        except BrokerError as error:
            return self._refuse(header, error)
        try:
            return await self.serve(header, parts)
        finally:
            self._memory.give_back(len(request))

    async def produce_stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[ProduceResponse]:
        """The next request is taken when the one before is answered: that is the stream's back-pressure."""
        async for request in requests:
            header, parts = _decode(request)
            await self._memory.wait_take(len(request))
            try:
                response = await self.serve(header, parts)
            finally:
                self._memory.give_back(len(request))
            yield response

    async def serve(self, header: ProduceHeader, parts: Sequence[memoryview]) -> ProduceResponse:
        """`parts` are the partitions' records, in the order of the header; nobody looks at them after the answer."""
        if header.acks not in _ACKS:
            return self._refuse(
                header, ErrorCode.INVALID_REQUIRED_ACKS.exception(f"acks={header.acks}; expected -1, 0 or 1")
            )
        unheard_of = await self._hear_of_elections(header)
        guards = await self._guards_of(header, parts) if header.transactional_id else {}
        outcomes = [
            self._append(partition, records, header.acks, guards, unheard_of)
            for partition, records in zip(header.partitions, parts, strict=True)
        ]
        if header.acks == ACKS_NONE:
            return ProduceResponse()
        pending = [pending for _, pending in outcomes if pending is not None]
        await wait_for_appends(self._produces, pending, header.timeout_ms)
        answers = [self._settled(outcome) for outcome in outcomes]
        return ProduceResponse(partitions=answers, node_endpoints=leader_nodes(self._replicas.brokers, answers))

    async def _hear_of_elections(self, header: ProduceHeader) -> frozenset[TopicPartition]:
        """Those of which this broker has not heard as much as the client, not even after a while."""
        epochs = {
            TopicPartition(one.topic, one.partition): one.current_leader_epoch
            for one in header.partitions
            if one.current_leader_epoch > 0
        }
        awaited = self._awaited(epochs)
        if not awaited or self._produces.is_full:
            return awaited
        wait_ms = min(max(0, header.timeout_ms), NEWS_WAIT_MAX_MS)
        await self._produces.wait(
            lambda on_done: DelayedNews(lambda: bool(self._awaited(epochs)), on_done), awaited, wait_ms
        )
        return self._awaited(epochs)

    def _awaited(self, epochs: Mapping[TopicPartition, int]) -> frozenset[TopicPartition]:
        return frozenset(name for name, epoch in epochs.items() if self._replicas.awaits_epoch(name, epoch))

    async def _guards_of(self, header: ProduceHeader, parts: Sequence[memoryview]) -> Guards:
        names = [TopicPartition(one.topic, one.partition) for one in header.partitions]
        return await self._transactions.of(header.transactional_id, zip(names, parts, strict=True))

    def _append(
        self,
        partition: ProducePartition,
        records: memoryview,
        acks: int,
        guards: Guards,
        unheard_of: frozenset[TopicPartition],
    ) -> _Outcome:
        topic_partition = TopicPartition(partition.topic, partition.partition)
        try:
            if topic_partition in unheard_of:
                # Or of a topic that is gone, and this is another one of its name.
                raise _UnknownLeaderEpochError(
                    f"{topic_partition} has no leader epoch {partition.current_leader_epoch} that this broker knows"
                )
            guard = guards.get(topic_partition)
            if isinstance(guard, BrokerError):
                raise guard
            if partition.HasField("writer"):
                replica, appended = self._append_for_shard(topic_partition, partition.writer, records, acks)
            else:
                replica, appended = self._replicas.append(topic_partition, records, acks=acks, guard=guard)
        except BrokerError as error:
            return _Outcome(self._failed(partition, error), None)
        metrics.BYTES_IN.inc(len(records))
        answer = ProducedPartition(
            topic=partition.topic,
            partition=partition.partition,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.log_append_time_ms,
            log_start_offset=appended.log_start_offset,
        )
        pending = PendingAppend(replica, appended.last_offset + 1) if acks == ACKS_ALL else None
        return _Outcome(answer, pending)

    def _append_for_shard(
        self, topic_partition: TopicPartition, writer: WriterFence, records: memoryview, acks: int
    ) -> tuple[Partition, AppendResult]:
        if acks != ACKS_ALL:
            raise ErrorCode.INVALID_REQUIRED_ACKS.exception(f"acks={acks} of a shard's writer; expected -1")
        base_offset = writer.base_offset if writer.HasField("base_offset") else None
        owner = ShardWriter(writer.producer_id, writer.producer_epoch, writer.transaction_version, base_offset)
        return self._replicas.append_as_coordinator(topic_partition, records, owner)

    def _refuse(self, header: ProduceHeader, error: BrokerError) -> ProduceResponse:
        failed = [self._failed(partition, error) for partition in header.partitions]
        return ProduceResponse(partitions=failed if header.acks != ACKS_NONE else ())

    def _failed(self, partition: ProducePartition, error: BrokerError) -> ProducedPartition:
        metrics.on_error("produce", error.code)
        log.debug("produce topic=%s partition=%d refused: %s", partition.topic, partition.partition, error)
        answer = ProducedPartition(
            topic=partition.topic,
            partition=partition.partition,
            error_code=error.code,
            error_message=error.message,
            base_offset=-1,
            log_append_time_ms=-1,
            log_start_offset=-1,
            current_leader=-1,
            current_leader_epoch=-1,
        )
        self._hint(answer)
        return answer

    def _settled(self, outcome: _Outcome) -> ProducedPartition:
        """The answer after the wait."""
        answer, pending = outcome
        if pending is not None and pending.code:
            answer.error_code = pending.code
            answer.error_message = pending.code.text
            answer.base_offset = -1
            answer.current_leader = answer.current_leader_epoch = -1
            self._hint(answer)
        return answer

    def _hint(self, answer: ProducedPartition) -> None:
        if answer.error_code in HINTED:
            hint = self._replicas.leader_hint(TopicPartition(answer.topic, answer.partition))
            answer.current_leader, answer.current_leader_epoch = hint


def _decode(request: bytes) -> tuple[ProduceHeader, list[memoryview]]:
    """Raises InvalidRequestError for what is not a produce request."""
    header, records = decode_framed(request, ProduceHeader)
    named = {(partition.topic, partition.partition) for partition in header.partitions}
    if len(named) != len(header.partitions):
        raise _InvalidRequestError("a partition is named twice; each may have one part of the records")
    return header, split_records(records, [partition.records_bytes for partition in header.partitions])
