"""Guards the first write of a transaction to a log, while the transaction's coordinator is asked (KIP-890).

A transaction's first batch is appended only after the coordinator has added the partition to it. The answer arrives in
a later turn of the event loop. Until then, the transaction may have ended, and its marker may be in the log. A batch
after the marker would belong to no transaction, and would block the last stable offset for ever. So the question
creates a *guard*, and the append must present it. Any write for the transaction removes the guard. A late marker of the
previous transaction does not remove it. (If each transaction has its own epoch, this marker has the epoch of the new
one.) Kafka's `VerificationGuard` and `VerificationStateEntry`. Pure.
"""

from __future__ import annotations

from klamm.errors import EXCEPTIONS, ErrorCode

_InvalidTxnStateError = EXCEPTIONS[ErrorCode.INVALID_TXN_STATE]
_OutOfOrderSequenceNumberError = EXCEPTIONS[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


class VerificationGuard:
    """The guard of one producer and epoch. Guards are compared by identity."""

    __slots__ = ("lowest_sequence", "producer_epoch", "producer_id", "since_ms")

    def __init__(self, producer_id: int, producer_epoch: int, lowest_sequence: int, since_ms: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.lowest_sequence = lowest_sequence
        """The lowest sequence number of the batches that wait for an answer. Its batch must be written first, whichever
        answer arrives first."""
        self.since_ms = since_ms


class Verifications:
    """The guards of one log: one for each producer, at most `ids_max`."""

    def __init__(self, ids_max: int) -> None:
        assert ids_max > 0, ids_max
        self._ids_max = ids_max
        self._guards: dict[int, VerificationGuard] = {}

    def begin(self, producer_id: int, producer_epoch: int, sequence: int, *, now_ms: int) -> VerificationGuard:
        """Returns the guard to present with the batch of `sequence`, after the coordinator has confirmed the
        transaction."""
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
        """Raises the exception of INVALID_TXN_STATE if a write for the producer has removed the guard. Raises that of
        OUT_OF_ORDER_SEQUENCE_NUMBER if an earlier batch still waits."""
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
        """Removes the producer's guard up to `last_epoch`, after a batch of the transaction or a marker was written."""
        guard = self._guards.get(producer_id)
        if guard is not None and guard.producer_epoch <= last_epoch:
            del self._guards[producer_id]

    def expire(self, *, older_than_ms: int) -> None:
        """Drops guards of questions that were never completed."""
        for producer_id in [number for number, guard in self._guards.items() if guard.since_ms < older_than_ms]:
            del self._guards[producer_id]
