"""Transactions that are about to write to a log for the first time, while their coordinator is asked (KIP-890).

A transaction's first batch is appended only when the coordinator has added the partition to it. The answer comes in a
later turn; meanwhile the transaction may have ended, and its marker may be in the log: a batch after it would belong to
nothing, and hold the log's stable end for ever. So the question leaves a *guard* here, the append must show it, and
whatever is written for the transaction takes it away. The marker of the transaction before, which may come late, does
not (it has the epoch of this one, if each has its own). Kafka's `VerificationGuard` and `VerificationStateEntry`. Pure.
"""

from __future__ import annotations

from klamm.errors import EXCEPTIONS, ErrorCode

_InvalidTxnStateError = EXCEPTIONS[ErrorCode.INVALID_TXN_STATE]
_OutOfOrderSequenceNumberError = EXCEPTIONS[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


class VerificationGuard:
    """One producer and epoch; compared by identity."""

    __slots__ = ("lowest_sequence", "producer_epoch", "producer_id", "since_ms")

    def __init__(self, producer_id: int, producer_epoch: int, lowest_sequence: int, since_ms: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.lowest_sequence = lowest_sequence
        """The lowest sequence of the batches that waited for an answer: its batch is written first, whichever answer
        comes first."""
        self.since_ms = since_ms


class Verifications:
    """The guards of one log: one for each producer, at most `ids_max`."""

    def __init__(self, ids_max: int) -> None:
        assert ids_max > 0, ids_max
        self._ids_max = ids_max
        self._guards: dict[int, VerificationGuard] = {}

    def begin(self, producer_id: int, producer_epoch: int, sequence: int, *, now_ms: int) -> VerificationGuard:
        """The guard to show with the batch of `sequence` once the coordinator has said yes."""
        guard = self._guards.get(producer_id)
        if guard is None or guard.producer_epoch < producer_epoch:
            self._guards.pop(producer_id, None)
            guard = self._guards[producer_id] = VerificationGuard(producer_id, producer_epoch, sequence, now_ms)
            if len(self._guards) > self._ids_max:
                del self._guards[next(iter(self._guards))]
        elif guard.producer_epoch == producer_epoch:
            guard.lowest_sequence = min(guard.lowest_sequence, sequence)
        return guard

    def check(self, guard: VerificationGuard, sequence: int) -> None:
        """Raises the exception of INVALID_TXN_STATE when something was written for the producer since, of
        OUT_OF_ORDER_SEQUENCE_NUMBER when an earlier batch still waits."""
        if self._guards.get(guard.producer_id) is not guard:
            raise _InvalidTxnStateError(
                f"the transaction of producer {guard.producer_id}, epoch {guard.producer_epoch}, ended while the broker"
                " verified the transaction with its coordinator"
            )
        if sequence > guard.lowest_sequence:
            raise _OutOfOrderSequenceNumberError(
                f"producer {guard.producer_id} sends sequence {sequence}; expected {guard.lowest_sequence} first"
            )

    def end(self, producer_id: int, last_epoch: int) -> None:
        """A batch of the producer's transaction of that epoch was written, or a marker that ends it and all before."""
        guard = self._guards.get(producer_id)
        if guard is not None and guard.producer_epoch <= last_epoch:
            del self._guards[producer_id]

    def expire(self, *, older_than_ms: int) -> None:
        """Forgets questions nobody came back from."""
        for producer_id in [number for number, one in self._guards.items() if one.since_ms < older_than_ms]:
            del self._guards[producer_id]
