"""The durable state of one transactional id, and its changes. States are values, and each change returns a new one.

A producer gets the epochs 0 to `EPOCH_LAST`. One more epoch is kept for the marker that ends a transaction of
`EPOCH_LAST`. The producer id is then used up, and the next transaction has a new id with epoch 0 (Kafka's
TransactionMetadata).

`last_producer_epoch` is the epoch before the current one, if the same producer has both. This producer may not know its
new epoch yet. The field is -1 after another producer has replaced it. It distinguishes a zombie from a producer that
repeats a request, or whose transaction timed out (KIP-360, KIP-588).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from klamm.model import NO_PRODUCER_ID, TopicPartition
from klamm_coordinator.transaction.states import PREDECESSORS, TxnState

EPOCH_MAX = (1 << 15) - 1
EPOCH_LAST = EPOCH_MAX - 1
"""The last epoch that a producer gets."""
NO_EPOCH = -1
NO_TIMESTAMP = -1

WITHOUT_BUMP = 0
"""The version of a transaction that ends in its own epoch, as clients before KIP-890 expect (Kafka's
transaction.version)."""
WITH_BUMP = 2


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and one of its epochs."""

    producer_id: int
    producer_epoch: int


NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_EPOCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    """The value of a record of `__transaction_state`. Times are wall-clock ms."""

    producer_id: int
    producer_epoch: int
    last_producer_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id that the transactional id had before the last change."""
    next_producer_id: int = NO_PRODUCER_ID
    """The next producer id, while a transaction that used up the current producer id is being ended."""
    timeout_ms: int
    state: TxnState
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    last_update_ms: int
    transaction_version: int = WITH_BUMP
    prepared_ms: int = NO_TIMESTAMP
    """The wall clock's time in ms when the open transaction was prepared. After that, its ledger decides how it
    ends."""

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The producer id and epoch that may write, as soon as no transaction is being ended."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.next_producer_id, 0)
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_exhausted(self) -> bool:
        """True if the producer id has no further epoch for a producer."""
        return self.producer_epoch >= EPOCH_LAST

    @property
    def is_prepared(self) -> bool:
        """True while the open transaction is prepared. Nothing is added to it any more, and transaction.timeout.ms does
        not end it (KIP-939)."""
        return self.prepared_ms != NO_TIMESTAMP

    def was_last(self, producer: ProducerIdAndEpoch) -> bool:
        """Returns True if `producer` is the id and epoch that the current producer had before."""
        if self.last_producer_epoch == NO_EPOCH or producer.producer_epoch != self.last_producer_epoch:
            return False
        return self._was_bumped(producer) or self._was_rotated(producer)

    def _was_bumped(self, producer: ProducerIdAndEpoch) -> bool:
        return producer == (self.producer_id, self.producer_epoch - 1)

    def _was_rotated(self, producer: ProducerIdAndEpoch) -> bool:
        return producer == (self.previous_producer_id, EPOCH_LAST) and self.producer_epoch == 0

    # Changes

    def initialised(
        self, producer: ProducerIdAndEpoch, *, last_producer_epoch: int, timeout_ms: int, now_ms: int
    ) -> TransactionMetadata:
        """Returns the state after a producer has got this id and epoch."""
        return self._change(
            TxnState.EMPTY,
            now_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            last_producer_epoch=last_producer_epoch,
            timeout_ms=timeout_ms,
            start_ms=NO_TIMESTAMP,
        )

    def adding(self, partitions: frozenset[TopicPartition], now_ms: int) -> TransactionMetadata:
        """Returns the state after these partitions were added. If no transaction is open, one begins."""
        assert not self.is_prepared, self
        return self._change(
            TxnState.ONGOING,
            now_ms,
            partitions=self.partitions | partitions,
            start_ms=self.start_ms if self.state is TxnState.ONGOING else now_ms,
        )

    def prepared(self, now_ms: int) -> TransactionMetadata:
        """Returns the state after the open transaction was prepared."""
        return self._change(TxnState.ONGOING, now_ms, prepared_ms=max(now_ms, 0))

    def ending(self, *, committed: bool, now_ms: int) -> TransactionMetadata:
        """Returns the state after the transaction was decided, in its own epoch."""
        return self._change(
            TxnState.PREPARE_COMMIT if committed else TxnState.PREPARE_ABORT,
            now_ms,
            transaction_version=WITHOUT_BUMP,
        )

    def ending_epoch(
        self, *, committed: bool, now_ms: int, last_producer_epoch: int, next_producer_id: int
    ) -> TransactionMetadata:
        """Returns the state after the transaction was decided and its epoch ended. The marker carries the next epoch.

        `next_producer_id` is required if the producer id has no epoch for the next transaction."""
        assert self.is_exhausted == (next_producer_id != NO_PRODUCER_ID), (self, next_producer_id)
        return self._change(
            TxnState.PREPARE_COMMIT if committed else TxnState.PREPARE_ABORT,
            now_ms,
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=last_producer_epoch,
            next_producer_id=next_producer_id,
            start_ms=self.start_ms if self.state is TxnState.ONGOING else now_ms,
            transaction_version=WITH_BUMP,
        )

    def completed(self, now_ms: int) -> TransactionMetadata:
        """Returns the state after all partitions have the marker."""
        return self._change(
            TxnState.COMPLETE_COMMIT if self.state is TxnState.PREPARE_COMMIT else TxnState.COMPLETE_ABORT,
            now_ms,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
        )

    def _change(self, state: TxnState, now_ms: int, **fields: object) -> TransactionMetadata:
        assert self.state in PREDECESSORS[state], (self, state)
        changed: dict[str, Any] = {
            "state": state,
            "previous_producer_id": self.producer_id,
            # The clock may have been set back.
            "last_update_ms": max(now_ms, self.last_update_ms),
            "prepared_ms": NO_TIMESTAMP,
        }
        after = replace(self, **changed | fields)
        after.check_invariants()
        return after

    def check_invariants(self) -> None:
        """Asserts the invariants that hold for every value."""
        assert self.producer_id >= 0, self
        assert 0 <= self.producer_epoch <= EPOCH_MAX, self
        assert self.producer_epoch <= EPOCH_LAST or self.next_producer_id != NO_PRODUCER_ID, self
        assert self.next_producer_id == NO_PRODUCER_ID or self.state.is_decided, self
        assert not self.partitions or not self.state.is_idle, self
        assert (self.start_ms == NO_TIMESTAMP) <= (self.state is TxnState.EMPTY), self
        assert self.is_prepared <= (self.state is TxnState.ONGOING), self


def new_transactional_id(producer_id: int, *, timeout_ms: int, now_ms: int) -> TransactionMetadata:
    """Returns the state of a transactional id that was never used."""
    return TransactionMetadata(
        producer_id=producer_id,
        producer_epoch=0,
        timeout_ms=timeout_ms,
        state=TxnState.EMPTY,
        last_update_ms=now_ms,
    )
