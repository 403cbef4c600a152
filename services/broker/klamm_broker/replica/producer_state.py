"""What a partition remembers of idempotent producers: which epoch may write, and which batches it has already.

KIP-98, Kafka's `ProducerStateManager` and `ProducerAppendInfo`. A batch with a producer id is

- refused with INVALID_PRODUCER_EPOCH when its epoch is older than one seen: a newer owner of the id writes now;
- a duplicate when it is one of the last `BATCHES_KEPT` of its producer: answered as it was, not appended again;
- refused with OUT_OF_ORDER_SEQUENCE_NUMBER when its sequence does not go on from the last one (0 in a new
  epoch). Of a producer that is not known (its state expired) every sequence is accepted.

The state is what the headers in the log say, so replaying them gives it back after a restart. Pure.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.records.header import BatchHeader, increment_sequence

BATCHES_KEPT = 5
"""As many as a producer may have under way at once (`max.in.flight.requests.per.connection`)."""

_InvalidProducerEpochError = EXCEPTIONS[ErrorCode.INVALID_PRODUCER_EPOCH]
_OutOfOrderSequenceNumberError = EXCEPTIONS[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


class WrittenBatch(NamedTuple):
    """A batch that is in the log."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


class _Producer:
    __slots__ = ("batches", "epoch", "last_write_ms")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[WrittenBatch] = deque(maxlen=BATCHES_KEPT)
        self.last_write_ms = 0


class ProducerStates:
    """The producers of one partition. `check` before an append, `note` after it."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, header: BatchHeader) -> WrittenBatch | None:
        """The batch `header` is a duplicate of, or None when it may be appended.

        Raises InvalidProducerEpochError or OutOfOrderSequenceNumberError."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        if header.producer_epoch < producer.epoch:
            raise _InvalidProducerEpochError(
                f"producer {header.producer_id} writes with epoch {header.producer_epoch};"
                f" the latest is {producer.epoch}"
            )
        if header.producer_epoch > producer.epoch:
            self._check_sequence(header, expected=0)
            return None
        for batch in producer.batches:
            if (batch.base_sequence, batch.last_sequence) == (header.base_sequence, header.last_sequence):
                return batch
        self._check_sequence(header, expected=increment_sequence(producer.batches[-1].last_sequence, 1))
        return None

    def _check_sequence(self, header: BatchHeader, expected: int) -> None:
        if header.base_sequence != expected:
            raise _OutOfOrderSequenceNumberError(
                f"producer {header.producer_id} of epoch {header.producer_epoch} sends sequence"
                f" {header.base_sequence}; expected {expected}"
            )

    def note(self, header: BatchHeader, *, base_offset: int, now_ms: int) -> None:
        """The batch is in the log at `base_offset`; its epoch is the producer's from now on."""
        producer = self._producers.get(header.producer_id)
        if producer is None or header.producer_epoch > producer.epoch:
            producer = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        last_offset = base_offset + header.last_offset_delta
        producer.batches.append(WrittenBatch(header.base_sequence, header.last_sequence, base_offset, last_offset))
        producer.last_write_ms = now_ms

    def expire(self, *, older_than_ms: int) -> None:
        """Forgets producers that have not written since (`producer.id.expiration.ms`)."""
        gone = [number for number, one in self._producers.items() if one.last_write_ms < older_than_ms]
        for number in gone:
            del self._producers[number]
