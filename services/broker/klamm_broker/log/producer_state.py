"""What a log remembers of idempotent producers: which epoch may write, and which records it has already.

KIP-98, KIP-360; Kafka's `ProducerStateManager` and `ProducerAppendInfo`. A record set with a producer id is

- refused with INVALID_PRODUCER_EPOCH when its epoch is older than one seen: a newer owner of the id writes now;
- a duplicate when all of it is in the log: answered as it was, not appended again;
- refused with OUT_OF_ORDER_SEQUENCE_NUMBER when its sequence does not go on from the last one (0 in a new
  epoch). Of a producer that is not known every sequence is accepted.

Where Kafka keeps the last five batches of a producer, this keeps its last five *runs*: batches that follow one another
both in sequence and in offset are one, so that a run says where each of its records is. Batches among which others
write are runs of their own, as in Kafka; a record set of several batches is one run always.

The state is what the headers in the log say: replaying them gives it back (`producer_recovery.py`), and compaction
keeps the header of the last batch of each producer for it. A producer is forgotten by time, not when its records are
deleted (KIP-360), or when `ids_max` others have written since. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.records.header import SEQUENCE_MAX, BatchHeader, TimestampType, increment_sequence

RUNS_KEPT = 5
"""As many as a producer may have batches under way (`max.in.flight.requests.per.connection`)."""
RUN_LENGTH_MAX = 2**30
"""A run must not grow so long that a sequence number stands for two of its records."""
DEFAULT_IDS_MAX = 10_000

_InvalidProducerEpochError = EXCEPTIONS[ErrorCode.INVALID_PRODUCER_EPOCH]
_InvalidRecordError = EXCEPTIONS[ErrorCode.INVALID_RECORD]
_OutOfOrderSequenceNumberError = EXCEPTIONS[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


class Run(NamedTuple):
    """`record_count` records with consecutive sequence numbers at consecutive offsets."""

    base_sequence: int
    base_offset: int
    record_count: int
    timestamp_ms: int
    """When the last of them were written here; their log append time if they have one, then the same for all."""

    @property
    def last_sequence(self) -> int:
        return increment_sequence(self.base_sequence, self.record_count - 1)

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.record_count

    def part(self, base_sequence: int, record_count: int) -> Run | None:
        """The records with these sequence numbers, None unless all of them are in this run."""
        start = (base_sequence - self.base_sequence) & SEQUENCE_MAX
        if start + record_count > self.record_count:
            return None
        return Run(base_sequence, self.base_offset + start, record_count, self.timestamp_ms)


class ProducerRow(NamedTuple):
    """One run of one producer, as snapshots hold it."""

    producer_id: int
    epoch: int
    run: Run


class _Producer:
    __slots__ = ("epoch", "runs")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.runs: deque[Run] = deque(maxlen=RUNS_KEPT)
        """At least one, oldest first."""


class ProducerStates:
    """The producers of one log, in the order of their last write. `check` before an append, `note` after it."""

    def __init__(self, ids_max: int = DEFAULT_IDS_MAX) -> None:
        assert ids_max > 0, ids_max
        self._ids_max = ids_max
        self._producers: dict[int, _Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    # Appending

    def check(self, headers: Sequence[BatchHeader]) -> Run | None:
        """The part of the log that a record set repeats, or None when it may be appended.

        Raises the exception of INVALID_RECORD when its batches are not one producer's in sequence,
        of INVALID_PRODUCER_EPOCH or of OUT_OF_ORDER_SEQUENCE_NUMBER."""
        first = headers[0]
        record_count = _count_in_sequence(headers)
        producer = self._producers.get(first.producer_id)
        if producer is None:
            return None
        if first.producer_epoch < producer.epoch:
            raise _InvalidProducerEpochError(
                f"producer {first.producer_id} writes with epoch {first.producer_epoch}; the latest is {producer.epoch}"
            )
        if first.producer_epoch > producer.epoch:
            expected = 0
        else:
            expected = increment_sequence(producer.runs[-1].last_sequence, 1)
        if first.base_sequence == expected:
            return None
        if first.producer_epoch == producer.epoch:
            for run in producer.runs:
                if (duplicate := run.part(first.base_sequence, record_count)) is not None:
                    return duplicate
        raise _OutOfOrderSequenceNumberError(
            f"producer {first.producer_id} of epoch {first.producer_epoch} sends sequence {first.base_sequence};"
            f" expected {expected}"
        )

    def note(self, header: BatchHeader, *, base_offset: int, now_ms: int) -> None:
        """The batch is in the log at `base_offset`; its epoch is the producer's from now on.

        `header` as it is stored but for the offset; of a control batch nothing is remembered."""
        if header.producer_id < 0 or header.is_control:
            return
        producer = self._producers.pop(header.producer_id, None)
        if producer is None or header.producer_epoch != producer.epoch:
            producer = _Producer(header.producer_epoch)
        self._producers[header.producer_id] = producer
        is_stamped = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        timestamp_ms = header.max_timestamp_ms if is_stamped else now_ms
        batch = Run(header.base_sequence, base_offset, header.last_offset_delta + 1, timestamp_ms)
        last = producer.runs[-1] if producer.runs else None
        if last is not None and _follows(last, batch) and (not is_stamped or last.timestamp_ms == timestamp_ms):
            producer.runs[-1] = _joined(last, batch)
        else:
            producer.runs.append(batch)
        if len(self._producers) > self._ids_max:
            del self._producers[next(iter(self._producers))]

    # Forgetting

    def expire(self, *, older_than_ms: int) -> None:
        """Forgets producers that have not written since (`producer.id.expiration.ms`)."""
        gone = [number for number, one in self._producers.items() if one.runs[-1].timestamp_ms < older_than_ms]
        for number in gone:
            del self._producers[number]

    def clear(self) -> None:
        self._producers.clear()

    def truncate_to(self, offset: int) -> bool:
        """Forgets what was written at `offset` and after. False when the rest must be read again: `clear`, then do.

        That is so for a producer of which only later runs are known, unless it began with them, and for one that may
        have had a run before those that are kept."""
        for number, producer in list(self._producers.items()):
            first = producer.runs[0]
            if len(producer.runs) == RUNS_KEPT and producer.runs[-1].base_offset >= offset:
                return False
            while producer.runs and producer.runs[-1].base_offset >= offset:
                producer.runs.pop()
            if producer.runs:
                last = producer.runs[-1]
                count = min(last.record_count, offset - last.base_offset)
                producer.runs[-1] = last._replace(record_count=count)
            elif producer.epoch == 0 and first.base_sequence == 0:
                del self._producers[number]
            else:
                return False
        return True

    # Snapshots

    def rows(self) -> Iterator[ProducerRow]:
        """All runs of all producers, those of one oldest first."""
        for number, producer in self._producers.items():
            for run in producer.runs:
                yield ProducerRow(number, producer.epoch, run)

    def restore(self, rows: Iterable[ProducerRow]) -> None:
        """Takes what `rows` gave."""
        for row in rows:
            producer = self._producers.get(row.producer_id)
            if producer is None or producer.epoch != row.epoch:
                producer = self._producers[row.producer_id] = _Producer(row.epoch)
            producer.runs.append(row.run)

    def check_invariants(self, log_end_offset: int) -> None:
        """Asserts that runs are in order, and of records that are in the log."""
        assert len(self._producers) <= self._ids_max, len(self._producers)
        for number, producer in self._producers.items():
            assert producer.runs, number
            end_offset = 0
            for run in producer.runs:
                assert run.record_count > 0, (number, run)
                assert run.base_offset >= end_offset, (number, run, end_offset)
                end_offset = run.next_offset
            assert end_offset <= log_end_offset, (number, end_offset, log_end_offset)


def _count_in_sequence(headers: Sequence[BatchHeader]) -> int:
    """How many records the batches have, which follow one another and are of one producer and epoch."""
    first, count = headers[0], 0
    for header in headers:
        if header.producer_id != first.producer_id or header.producer_epoch != first.producer_epoch:
            raise _InvalidRecordError(
                f"batches of producers {first.producer_id} and {header.producer_id}, epochs {first.producer_epoch} and"
                f" {header.producer_epoch}, in one record set; with a producer id there must be one"
            )
        expected = increment_sequence(first.base_sequence, count)
        if header.base_sequence != expected:
            raise _InvalidRecordError(
                f"sequence {header.base_sequence} in a record set of producer {first.producer_id}; expected {expected}"
            )
        count += header.last_offset_delta + 1
    return count


def _follows(last: Run, batch: Run) -> bool:
    return batch.base_offset == last.next_offset and batch.base_sequence == increment_sequence(last.last_sequence, 1)


def _joined(last: Run, batch: Run) -> Run:
    count = last.record_count + batch.record_count
    surplus = max(0, count - RUN_LENGTH_MAX)
    if surplus >= last.record_count:
        return batch
    return Run(
        increment_sequence(last.base_sequence, surplus), last.base_offset + surplus, count - surplus, batch.timestamp_ms
    )
