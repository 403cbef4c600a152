"""A partition as its leader sees it: producer state and verification guards over a log in memory.

An appended record is committed at once. `isrsim` simulates replication.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm.records.control import ControlRecord, ControlRecordType
from klamm.records.header import CONTROL_MASK, TRANSACTIONAL_MASK, TimestampType
from klamm_broker.log.producers.producer_state import EPOCH_PER_TRANSACTION, ProducerStates
from klamm_broker.log.producers.verification import VerificationGuard, Verifications
from klamm_coordinator.transaction.messages import AddPartitions, AddReply, SendMarkers
from klamm_coordinator.transaction.metadata import ProducerIdAndEpoch
from tests.sim.kit.world import MS

if TYPE_CHECKING:
    from tests.sim.txnsim.cluster import Cluster

IDS_MAX = 1_000
OnCode = Callable[[ErrorCode], None]


@dataclass(frozen=True, slots=True)
class Header:
    """The fields of a batch of one record that the producer state reads."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    attributes: int = TRANSACTIONAL_MASK
    last_offset_delta: int = 0
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    max_timestamp_ms: int = 0

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_MASK)


class Batch(NamedTuple):
    """A batch in the log: a record with a value, or a marker."""

    producer: ProducerIdAndEpoch
    value: int | None
    committed: bool = False


class Partition:
    """A simulated partition with `on_produce` and `on_marker`. `log` has the batches that readers get."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster = cluster
        self.name = TopicPartition("t", number)
        self.log: list[Batch] = []
        self.states = ProducerStates(IDS_MAX)
        self.last_stable_offset = 0
        self._verifications = Verifications(IDS_MAX)
        self._life = 0

    def restart(self) -> None:
        """Makes another process the leader. It has the snapshots' state, and no pending verifications."""
        rows = list(self.states.rows())
        self.states = ProducerStates(IDS_MAX)
        self.states.restore(rows)
        self._verifications = Verifications(IDS_MAX)
        self._life += 1

    # Producers

    def on_produce(
        self, transactional_id: str, producer: ProducerIdAndEpoch, sequence: int, value: int, on_code: OnCode
    ) -> None:
        header = Header(producer.producer_id, producer.producer_epoch, sequence)

        def answer(code: ErrorCode) -> None:
            self.cluster.network.send(on_code, code)

        try:
            guard = self._begin(header)
            if guard is None:
                self._append(header, value, None)
                answer(ErrorCode.NONE)
                return
        except BrokerError as error:
            answer(error.code)
            return
        life = self._life

        def on_verified(reply: AddReply | ErrorCode) -> None:
            code = reply if isinstance(reply, ErrorCode) else reply.error
            if life != self._life:
                return
            try:
                if code is ErrorCode.NONE:
                    self._append(header, value, guard)
                answer(code)
            except BrokerError as error:
                answer(error.code)

        self.cluster.ask(
            AddPartitions,
            {
                "transactional_id": transactional_id,
                "producer": producer,
                "partitions": frozenset({self.name}),
            },
            on_verified,
        )

    def _begin(self, header: Header) -> VerificationGuard | None:
        producer_id, epoch = header.producer_id, header.producer_epoch
        self.states.check_epoch(producer_id, epoch)
        if self.states.has_open_transaction(producer_id, epoch):
            return None
        return self._verifications.begin(producer_id, epoch, header.base_sequence, now_ms=self._now_ms)

    def _append(self, header: Any, value: int, guard: VerificationGuard | None) -> None:
        """Checks the batch as LogProducers.check does, and appends it."""
        duplicate = self.states.check([header], is_verified=guard is not None)
        if duplicate is not None:
            return
        if guard is not None and not self.states.has_open_transaction(header.producer_id, header.producer_epoch):
            self._verifications.check(guard, header.base_sequence)
        producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
        self.cluster.checks.on_append(self, producer, value)
        self._note(header, Batch(producer, value), None)

    # Coordinators

    def on_marker(self, order: SendMarkers, coordinator_epoch: int, on_code: OnCode) -> None:
        producer_id, epoch = order.marker
        try:
            is_there = self.states.check_marker(
                producer_id, epoch, coordinator_epoch, transaction_version=order.transaction_version
            )
        except BrokerError as error:
            on_code(error.code)
            return
        if not is_there:
            kind = ControlRecordType.COMMIT if order.committed else ControlRecordType.ABORT
            self.cluster.checks.on_marker(self, order)
            has_next_epoch = order.transaction_version >= EPOCH_PER_TRANSACTION
            self._verifications.end(producer_id, epoch - has_next_epoch)
            self._note(
                Header(producer_id, epoch, -1, TRANSACTIONAL_MASK | CONTROL_MASK),
                Batch(order.marker, None, order.committed),
                ControlRecord(type=kind, coordinator_epoch=coordinator_epoch),
            )
        on_code(ErrorCode.NONE)

    def _note(self, header: Any, batch: Batch, marker: ControlRecord | None) -> None:
        self.states.note(header, base_offset=len(self.log), now_ms=self._now_ms, marker=marker)
        if marker is None:
            self._verifications.end(header.producer_id, header.producer_epoch)
        self.log.append(batch)
        self.states.transactions.commit(len(self.log))
        self.states.check_invariants(len(self.log))
        unstable = self.states.transactions.first_unstable_offset
        self.cluster.checks.on_stable_end(self, len(self.log) if unstable is None else unstable)

    @property
    def _now_ms(self) -> int:
        return self.cluster.world.now_us // MS
