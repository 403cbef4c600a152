"""Produce: appends record batches to partitions that this broker leads.

Kafka's `KafkaApis.handleProduceRequest`. Each partition has its own result, which does not affect the other partitions.
The protocol layers refuse malformed requests before they call this handler. The broker appends immediately, on the
event loop. Appends to many partitions take several turns of it. Three kinds of produce wait before the append. A
transaction's first write to a partition waits for the coordinator. If the client already knows of an election that this
broker does not know, its produce waits for the broker's metadata. Records that are too many to be checked on the event
loop are checked on a thread (`late_checks`).

With acks=0, only partitions that failed have an answer. A Kafka client cannot get it, so the listener closes the
connection (`kafka/hot/produce.py`). A gRPC client gets it.

After the append, acks=all waits in the purgatory if other replicas are in sync. acks=1 and acks=all wait there too
until the records are on disk, if `flush.messages` requires that. One sync serves all appends before it. If the client's
user has no place there, the client gets REQUEST_TIMED_OUT immediately. As after a timeout, this broker has the records,
and other replicas may lack them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence, Set
from typing import NamedTuple

from klamm import tracing
from klamm.acls import ResourceType
from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode, RecordError
from klamm.model import INTERNAL_TOPICS, TopicPartition
from klamm.records.header import ATTRIBUTES_POSITION, TRANSACTIONAL_MASK
from klamm_broker.handlers.append_wait import wait_for_appends
from klamm_broker.handlers.late_checks import LateChecks
from klamm_broker.handlers.leader_hints import HINTED
from klamm_broker.handlers.parkers import ClientHost, parker_of, unknown_host
from klamm_broker.handlers.topic_rights import refused_topics
from klamm_broker.handlers.transaction_guards import Guards, TransactionGuards
from klamm_broker.handlers.turns import TURN_PARTITIONS_MAX
from klamm_broker.io import metrics
from klamm_broker.log.partition.partition_log import AppendResult, ClientAppend, ShardAppend, ShardWriter
from klamm_broker.log.segment.check_budget import TURN_NS, CheckBudget, OverBudgetError
from klamm_broker.log.segment.record_set import CheckedSet
from klamm_broker.purgatory.driver import PurgatoryDriver
from klamm_broker.replica.delayed_leader_epoch import DelayedLeaderEpoch
from klamm_broker.replica.delayed_produce import PendingAppend, PendingSync
from klamm_broker.replica.leader_hint import leader_hint
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.runtime.waiting import Waiting
from klamm_server.security.needs import WRITE_INTERNAL_TOPIC, WRITE_TOPIC, WRITE_TRANSACTION
from klamm_server.security.session import CALLER, refusal

log = logging.getLogger(__name__)

NEWS_WAIT_MAX_MS = 1_000
"""The longest wait for the metadata of a leader epoch that only the client knows. After it, the records are refused."""
ACKS_ALL = -1
ACKS_NONE = 0
_ACKS = (ACKS_ALL, ACKS_NONE, 1)
_FLAGS_POSITION = ATTRIBUTES_POSITION + 1
"""The position of the lower byte of a batch's attributes."""
_NO_PARTITIONS: Set[TopicPartition] = frozenset()

_UnknownLeaderEpochError = EXCEPTIONS[ErrorCode.UNKNOWN_LEADER_EPOCH]


class PartitionRecords(NamedTuple):
    """The records to append to one partition."""

    topic_partition: TopicPartition
    records: memoryview
    """The batches to append. The broker does not read this memory after it has answered."""
    current_leader_epoch: int = -1
    """The newest leader epoch that the client knows."""
    writer: ShardWriter | None = None
    """The coordinator that owns this shard, if a coordinator writes. None for other producers."""


class Produce(NamedTuple):
    """A produce request of either protocol."""

    acks: int
    timeout_ms: int
    transactional_id: str
    """The producer's transactional id, or an empty string without a transaction."""
    partitions: Sequence[PartitionRecords]
    """The records of each partition. A partition occurs only once."""
    verify_only: bool = False
    """True if the client has added the partitions to the transaction itself, so that the coordinator only checks
    this."""
    client_host: ClientHost = unknown_host


class Produced(NamedTuple):
    """The answer for one partition."""

    topic_partition: TopicPartition
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    current_leader: int = -1
    current_leader_epoch: int = -1
    record_errors: Sequence[RecordError] = ()


_Pending = dict[TopicPartition, PendingAppend]
"""The appends that wait for other replicas or for the disk, by partition."""
_Late = dict[TopicPartition, asyncio.Future[Produced]]
"""The answers for record sets that are being checked on a thread and appended after it, by partition."""


class ProduceHandler:
    """Handles Produce requests of both protocols."""

    def __init__(
        self,
        replicas: ReplicaManager,
        produces: PurgatoryDriver,
        transactions: TransactionGuards,
        late: LateChecks,
    ) -> None:
        self._replicas = replicas
        self._late = late
        self._checking = late.checking
        self._budget = CheckBudget()
        """The budget of the current request."""
        self._transactions = transactions
        self._produces = produces

    def serve(self, produce: Produce) -> list[Produced] | Waiting[list[Produced]]:
        """Returns the answers in the order of the partitions, or `Waiting` if the produce must wait. With acks=0 the
        list has only the partitions that failed."""
        order = produce.partitions
        failed: list[Produced] = []
        if CALLER.get() is not None:
            produce, failed = self._without_denied(produce)
            if not produce.partitions:
                return failed
        answers: list[Produced] | Waiting[list[Produced]]
        if produce.acks not in _ACKS:
            error = ErrorCode.INVALID_REQUIRED_ACKS.exception(f"acks={produce.acks}; expected -1, 0 or 1")
            answers = self.refuse(produce, error)
        elif produce.transactional_id or len(produce.partitions) > TURN_PARTITIONS_MAX or self._awaited(produce):
            answers = Waiting(self._serve_async(produce))
        else:
            answers = self._append_all(produce, {}, _NO_PARTITIONS)
        if not failed:
            return answers
        if isinstance(answers, Waiting):
            return Waiting(_merge(order, failed, answers))
        return _merged(order, failed, answers)

    def _without_denied(self, produce: Produce) -> tuple[Produce, list[Produced]]:
        """Returns the request without the partitions that the caller may not write to, and the answers for these.

        Rights are checked first, so that the answer for a denied partition reveals nothing about it."""
        transactional_id = produce.transactional_id
        if transactional_id and not WRITE_TRANSACTION.allows(transactional_id):
            return self._all_denied(produce)
        if not transactional_id and _is_any_of_transaction(produce.partitions):
            # No server has checked that the caller may write in this transaction (CVE-2018-17196).
            return self._all_denied(produce)
        refused = unwritable_topics({partition.topic_partition.topic for partition in produce.partitions})
        if not refused:
            return produce, []
        denied = [partition for partition in produce.partitions if partition.topic_partition.topic in refused]
        allowed = [partition for partition in produce.partitions if partition.topic_partition.topic not in refused]
        failed = self.refuse(produce._replace(partitions=denied), refusal(ResourceType.TOPIC))
        return produce._replace(partitions=allowed), failed

    def _all_denied(self, produce: Produce) -> tuple[Produce, list[Produced]]:
        return produce._replace(partitions=()), self.refuse(produce, refusal(ResourceType.TRANSACTIONAL_ID))

    async def _serve_async(self, produce: Produce) -> list[Produced]:
        unknown_epochs = await self._await_elections(produce)
        guards = await self._guards_of(produce) if produce.transactional_id else {}
        if len(produce.partitions) > TURN_PARTITIONS_MAX:
            return await self._append_in_slices(produce, guards, unknown_epochs)
        answers = self._append_all(produce, guards, unknown_epochs)
        return await answers if isinstance(answers, Waiting) else answers

    async def _await_elections(self, produce: Produce) -> Set[TopicPartition]:
        """Waits for the metadata of elections that the client knows of. Returns the partitions whose election is still
        unknown to this broker after the wait."""
        awaited = self._awaited(produce)
        if not awaited:
            return awaited
        wait_ms = min(max(0, produce.timeout_ms), NEWS_WAIT_MAX_MS)
        await self._produces.wait(
            lambda on_done: DelayedLeaderEpoch(lambda: bool(self._awaited(produce)), on_done),
            awaited,
            wait_ms,
            parker_of(produce.client_host, (partition.topic for partition in awaited)),
        )
        return self._awaited(produce)

    def _awaited(self, produce: Produce) -> Set[TopicPartition]:
        awaited: set[TopicPartition] = set()
        for name, _, epoch, _ in produce.partitions:
            if epoch > 0 and self._replicas.awaits_epoch(name, epoch):
                awaited.add(name)
        return awaited

    async def _guards_of(self, produce: Produce) -> Guards:
        parts = [(partition.topic_partition, partition.records) for partition in produce.partitions]
        return await self._transactions.of(produce.transactional_id, parts, verify_only=produce.verify_only)

    def _append_all(
        self, produce: Produce, guards: Guards, unknown_epochs: Set[TopicPartition]
    ) -> list[Produced] | Waiting[list[Produced]]:
        pending: _Pending = {}
        late: _Late = {}
        if tracing.is_on():
            with tracing.span("append"):
                answers = self._append_each(produce.partitions, produce.acks, guards, unknown_epochs, pending, late)
        else:
            answers = self._append_each(produce.partitions, produce.acks, guards, unknown_epochs, pending, late)
        if late:
            return Waiting(self._finish_late(produce, answers, pending, late))
        if produce.acks == ACKS_NONE:
            return _failures(answers)
        return Waiting(self._await_replicas(answers, pending, produce)) if pending else answers

    async def _append_in_slices(
        self, produce: Produce, guards: Guards, unknown_epochs: Set[TopicPartition]
    ) -> list[Produced]:
        """Appends to many partitions in several turns of the event loop."""
        answers: list[Produced] = []
        pending: _Pending = {}
        late: _Late = {}
        with tracing.span("append"):
            for first in range(0, len(produce.partitions), TURN_PARTITIONS_MAX):
                part = produce.partitions[first : first + TURN_PARTITIONS_MAX]
                answers += self._append_each(part, produce.acks, guards, unknown_epochs, pending, late)
                await asyncio.sleep(0)
        return await self._finish_late(produce, answers, pending, late)

    def _append_each(
        self,
        partitions: Sequence[PartitionRecords],
        acks: int,
        guards: Guards,
        unknown_epochs: Set[TopicPartition],
        pending: _Pending,
        late: _Late,
    ) -> list[Produced]:
        self._budget.left_ns = TURN_NS
        answers = []
        for partition in partitions:
            answers.append(self._append(partition, partition.records, acks, guards, unknown_epochs, pending, late))
        return answers

    async def _finish_late(
        self, produce: Produce, answers: list[Produced], pending: _Pending, late: _Late
    ) -> list[Produced]:
        """Waits for the record sets that are being checked on a thread, and returns the final answers."""
        for number, partition in enumerate(produce.partitions):
            if (answering := late.get(partition.topic_partition)) is None:
                continue
            try:
                answers[number] = await answering
            except BrokerError as error:
                answers[number] = self._failed(partition.topic_partition, error)
        if produce.acks == ACKS_NONE:
            return _failures(answers)
        return await self._await_replicas(answers, pending, produce) if pending else answers

    async def _await_replicas(self, answers: Sequence[Produced], pending: _Pending, produce: Produce) -> list[Produced]:
        with tracing.span("replicate"):
            parker = parker_of(produce.client_host, (partition.topic for partition in pending))
            await wait_for_appends(self._produces, list(pending.values()), produce.timeout_ms, parker)
        return [self._settled(answer, pending.get(answer.topic_partition)) for answer in answers]

    def _append(
        self,
        wanted: PartitionRecords,
        records: memoryview | CheckedSet,
        acks: int,
        guards: Guards,
        unknown_epochs: Set[TopicPartition],
        pending: _Pending,
        late: _Late,
    ) -> Produced:
        """Appends records and returns the answer.

        Checks that would take the event loop too long begin on a thread instead. Then the future answer is added to
        `late`, and the returned one has no meaning."""
        topic_partition, sent, leader_epoch, writer = wanted
        try:
            if topic_partition in unknown_epochs:
                # Or the epoch belongs to a deleted topic, and this topic has the same name.
                raise _UnknownLeaderEpochError(
                    f"leader epoch {leader_epoch} of {topic_partition} is unknown to the broker"
                )
            guard = guards.get(topic_partition)
            if isinstance(guard, BrokerError):
                raise guard
            if writer is not None:
                replica, appended = self._append_for_shard(topic_partition, writer, sent, acks)
            elif self._checking and records is sent and topic_partition in self._checking:
                return self._begin_late(wanted, acks, guards, pending, late)
            else:
                request = ClientAppend(records, guard, self._budget)
                replica, appended = self._replicas.append(topic_partition, request, acks=acks)
        except OverBudgetError:
            return self._begin_late(wanted, acks, guards, pending, late)
        except BrokerError as error:
            return self._failed(topic_partition, error)
        base_offset, last_offset, log_append_time_ms, log_start_offset, is_duplicate = appended
        if not is_duplicate:
            metrics.on_append(topic_partition.topic, len(records), last_offset + 1 - base_offset)
            replica.log.traffic.in_bytes += len(records)
        if acks == ACKS_ALL:
            if last_offset >= replica.high_watermark:
                pending[topic_partition] = PendingAppend(replica, last_offset + 1)
        elif acks != ACKS_NONE and last_offset >= replica.log.flusher.acknowledgeable_offset:
            pending[topic_partition] = PendingSync(replica, last_offset + 1)
        return Produced(topic_partition, ErrorCode.NONE, "", base_offset, log_append_time_ms, log_start_offset)

    def _begin_late(
        self, wanted: PartitionRecords, acks: int, guards: Guards, pending: _Pending, late: _Late
    ) -> Produced:
        topic_partition = wanted.topic_partition

        def append(checked: CheckedSet) -> Produced:
            return self._append(wanted, checked, acks, guards, _NO_PARTITIONS, pending, late)

        late[topic_partition] = self._late.begin(self._replicas.leader(topic_partition), wanted.records, append)
        return Produced(topic_partition)

    def _append_for_shard(
        self, topic_partition: TopicPartition, writer: ShardWriter, records: memoryview, acks: int
    ) -> tuple[Partition, AppendResult]:
        if acks != ACKS_ALL:
            raise ErrorCode.INVALID_REQUIRED_ACKS.exception(f"acks={acks} in a write of a coordinator; expected -1")
        return self._replicas.append(topic_partition, ShardAppend(records, writer))

    def refuse(self, produce: Produce, error: BrokerError) -> list[Produced]:
        """Returns the answers for a request of which nothing is appended."""
        return [self._failed(partition.topic_partition, error) for partition in produce.partitions]

    def _failed(self, topic_partition: TopicPartition, error: BrokerError) -> Produced:
        metrics.on_error("produce", error.code)
        log.debug("refused records of a producer, partition=%s: %s", topic_partition, error)
        refused = Produced(topic_partition, error.code, error.message)
        if error.record_errors:
            replica = self._replicas.get(topic_partition)
            log_start_offset = -1 if replica is None else replica.log.log_start_offset
            return refused._replace(log_start_offset=log_start_offset, record_errors=error.record_errors)
        return self._hinted(refused)

    def _settled(self, answer: Produced, pending: PendingAppend | None) -> Produced:
        """Returns the final answer of a partition after the wait for other replicas or for the disk."""
        if pending is None or not pending.code:
            return answer
        return self._hinted(answer._replace(error_code=pending.code, error_message=pending.code.text, base_offset=-1))

    def _hinted(self, answer: Produced) -> Produced:
        if answer.error_code not in HINTED:
            return answer
        leader, leader_epoch = leader_hint(self._replicas, answer.topic_partition)
        return answer._replace(current_leader=leader, current_leader_epoch=leader_epoch)


def unwritable_topics(topics: set[str]) -> set[str]:
    """Returns the topics that the caller may not write to. There must be a caller."""
    refused = refused_topics(WRITE_TOPIC, topics - INTERNAL_TOPICS)
    internal = topics & INTERNAL_TOPICS
    if internal and not WRITE_INTERNAL_TOPIC.allows():
        refused |= internal
    return refused


def _failures(answers: Sequence[Produced]) -> list[Produced]:
    """Returns the answers that have an error."""
    return [answer for answer in answers if answer.error_code]


def _is_any_of_transaction(partitions: Sequence[PartitionRecords]) -> bool:
    """Returns True if the first batch of a partition is transactional. The append refuses batches that differ from the
    first in this."""
    for partition in partitions:
        records = partition.records
        if len(records) > _FLAGS_POSITION and records[_FLAGS_POSITION] & TRANSACTIONAL_MASK:
            return True
    return False


async def _merge(
    order: Sequence[PartitionRecords], failed: list[Produced], answers: Waiting[list[Produced]]
) -> list[Produced]:
    return _merged(order, failed, await answers)


def _merged(order: Sequence[PartitionRecords], failed: list[Produced], answers: list[Produced]) -> list[Produced]:
    """Returns the answers in the order of the request."""
    by_name = {answer.topic_partition: answer for answer in (*failed, *answers)}
    return [by_name[records.topic_partition] for records in order if records.topic_partition in by_name]
