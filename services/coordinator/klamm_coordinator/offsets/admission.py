"""Which transactions may write to a shard: those that their coordinator knows to write here (KIP-890).

Before the first offsets of a transaction the transaction's coordinator is asked, and it remembers the shard. Its
marker may come while the answer is on its way: then nothing of the transaction may be written any more, or it
would stay pending for ever. So the asking request takes a verification first, and a marker voids the verifications of
its transaction. The marker may also be that of the transaction before (KIP-890: it has the epoch of the next), which
says nothing of this one.

Kept for open transactions and questions under way only. Everything here is about writes that are wanted, not yet
acknowledged: what is wanted later is later in the log.
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm_coordinator.runtime.log_write import TxnMarker, TxnProducer

ANY_EPOCH = -1


class TransactionAdmission:
    """The transactions that may write to one shard."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        """Producer id and epoch of transactions that have written here."""
        self._verifying: dict[int, TxnProducer] = {}
        self._next_verification = 0

    def load(self, producer_ids: Iterable[int]) -> None:
        """Takes the transactions that were open when the shard was loaded. Their epochs are not known: the coordinator
        is asked about each again."""
        for producer_id in producer_ids:
            self._open[producer_id] = ANY_EPOCH

    def is_open(self, producer: TxnProducer) -> bool:
        """Whether the transaction has written here: then nobody need be asked."""
        return self._open.get(producer.producer_id) == producer.epoch

    def begin_verification(self, producer: TxnProducer) -> int:
        """Begins a verification, which the caller must end, whatever the answer; returns its number."""
        self._next_verification += 1
        self._verifying[self._next_verification] = producer
        return self._next_verification

    def end_verification(self, verification: int) -> None:
        """The answer is used, or none came."""
        self._verifying.pop(verification, None)

    def admits(self, producer: TxnProducer, verification: int | None) -> bool:
        """Whether the transaction may write now: it did before, or no marker came since the question was put."""
        return self.is_open(producer) or verification in self._verifying

    def wrote(self, producer: TxnProducer) -> None:
        """Offsets of the transaction are on their way into the log."""
        self._open[producer.producer_id] = producer.epoch

    def end(self, producer: TxnProducer, marker: TxnMarker) -> None:
        """The marker, of this producer and epoch, is on its way into the log."""
        self._open.pop(producer.producer_id, None)
        last_epoch = producer.epoch - 1 if marker.transaction_version >= 2 else producer.epoch
        for verification, asking in list(self._verifying.items()):
            if asking.producer_id == producer.producer_id and asking.epoch <= last_epoch:
                del self._verifying[verification]
