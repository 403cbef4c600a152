"""Decides which transactions may write to a shard: those whose coordinator knows that they write here (KIP-890).

Before the first offsets of a transaction, the shard asks the transaction's coordinator, which records the shard. The
transaction's marker may arrive before the answer. Later offsets of the transaction would then stay pending for ever, so
they must be refused. For this, the request begins a verification before it asks, and a marker voids the verifications
of its transaction. The marker may also belong to the previous transaction, and then voids nothing. (KIP-890: that
marker has the epoch of the next transaction.)

The state covers only open transactions and verifications under way. It reflects writes as soon as they are requested,
before they are acknowledged, because the log keeps the order of the requests.
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm_coordinator.runtime.log_write import TxnMarker, TxnProducer

ANY_EPOCH = -1


class TransactionAdmission:
    """The transactions that may write to one shard."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        """The epochs of the transactions that have written to this shard, by producer id."""
        self._verifying: dict[int, TxnProducer] = {}
        self._next_verification = 0

    def load(self, producer_ids: Iterable[int]) -> None:
        """Adds the transactions that were open when the shard was loaded. Their epochs are unknown, so each is verified
        again with its coordinator."""
        for producer_id in producer_ids:
            self._open[producer_id] = ANY_EPOCH

    def is_open(self, producer: TxnProducer) -> bool:
        """Returns True if the transaction has written to this shard already, so that its coordinator need not be
        asked."""
        return self._open.get(producer.producer_id) == producer.epoch

    def begin_verification(self, producer: TxnProducer) -> int:
        """Begins a verification and returns its number. The caller must end the verification, whatever the answer
        is."""
        self._next_verification += 1
        self._verifying[self._next_verification] = producer
        return self._next_verification

    def end_verification(self, verification: int) -> None:
        """Ends a verification, after its answer was used or no answer arrived."""
        self._verifying.pop(verification, None)

    def admits(self, producer: TxnProducer, verification: int | None) -> bool:
        """Returns True if the transaction may write now: it wrote before, or no marker voided its verification."""
        return self.is_open(producer) or verification in self._verifying

    def wrote(self, producer: TxnProducer) -> None:
        """Notes that offsets of the transaction are being written to the log."""
        self._open[producer.producer_id] = producer.epoch

    def end(self, producer: TxnProducer, marker: TxnMarker) -> None:
        """Notes that a marker of this producer and epoch is being written. Voids the verifications of the transaction
        that it ends."""
        self._open.pop(producer.producer_id, None)
        last_epoch = producer.epoch - 1 if marker.transaction_version >= 2 else producer.epoch
        for verification, asking in list(self._verifying.items()):
            if asking.producer_id == producer.producer_id and asking.epoch <= last_epoch:
                del self._verifying[verification]
