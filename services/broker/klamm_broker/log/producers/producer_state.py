"""The state that a log keeps of its producers: the epoch that may write, the last sequences, and open transactions.

KIP-98, KIP-360, KIP-890; Kafka's `ProducerStateManager` and `ProducerAppendInfo`. A record set with a producer id is

- refused with INVALID_PRODUCER_EPOCH if its epoch is older than one seen, because a newer owner writes with the id now;
- a duplicate if all of it is in the log: it gets its first answer again and is not appended;
- refused with OUT_OF_ORDER_SEQUENCE_NUMBER if its sequence does not follow the last one (0 in a new epoch). If the
  producer is unknown, every sequence is accepted, because its state may have been forgotten. Only a log that has never
  had a record cannot have forgotten it, so the sequence must be 0 there (KAFKA-15591);
- refused with INVALID_TXN_STATE if it would begin a transaction without a guard (`verification.py`), or if it is not
  part of the transaction that its producer has open.

A marker ends the transaction, and its epoch fences smaller ones. A marker with an older coordinator epoch than the last
is refused with TRANSACTION_COORDINATOR_FENCED. Records that coordinators write for a producer (offset commits) have no
sequence.

Kafka keeps the last five batches of a producer. Klamm keeps its last five *runs*. A run is a series of batches with
consecutive sequences and offsets, so that the offset of each of its records is known. If other producers write in
between, each batch is a separate run, as in Kafka. A record set of several batches is always one run.

The state follows from the batch headers in the log. A replay restores it (`producer_recovery.py`), and compaction keeps
the header of each producer's last batch for that. A producer is forgotten after a time without writes (KIP-360), or
when `ids_max` others have written since. It is not forgotten when its records are deleted, or while its transaction is
open. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.records.control import ControlRecord, ControlRecordType
from klamm.records.header import (
    NO_SEQUENCE,
    SEQUENCE_MAX,
    TRANSACTIONAL_MASK,
    BatchHeader,
    TimestampType,
    increment_sequence,
)
from klamm_broker.log.producers.open_transactions import CompletedTransaction, OpenTransactions

RUNS_KEPT = 5
"""The number of batches that a producer may have in flight (`max.in.flight.requests.per.connection`)."""
RUN_LENGTH_MAX = 2**30
"""The most records of one run. In a longer run, one sequence number could name two records."""
DEFAULT_IDS_MAX = 10_000
NO_COORDINATOR_EPOCH = -1
NO_OFFSET = -1
EPOCH_PER_TRANSACTION = 2
"""The first transaction version in which each transaction has its own epoch (KIP-890)."""

_InvalidProducerEpochError = EXCEPTIONS[ErrorCode.INVALID_PRODUCER_EPOCH]
_InvalidRecordError = EXCEPTIONS[ErrorCode.INVALID_RECORD]
_InvalidTxnStateError = EXCEPTIONS[ErrorCode.INVALID_TXN_STATE]
_TransactionCoordinatorFencedError = EXCEPTIONS[ErrorCode.TRANSACTION_COORDINATOR_FENCED]
_OutOfOrderSequenceNumberError = EXCEPTIONS[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


class Run(NamedTuple):
    """A run of `record_count` records with consecutive sequence numbers at consecutive offsets."""

    base_sequence: int
    base_offset: int
    record_count: int
    timestamp_ms: int
    """The time when the last record was written here. For records with a log append time, this time, equal for all."""

    @property
    def last_sequence(self) -> int:
        return increment_sequence(self.base_sequence, self.record_count - 1)

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.record_count

    def part(self, base_sequence: int, record_count: int) -> Run | None:
        """Returns the records with these sequence numbers, or None unless all of them are in this run."""
        start = (base_sequence - self.base_sequence) & SEQUENCE_MAX
        if start + record_count > self.record_count:
            return None
        return Run(base_sequence, self.base_offset + start, record_count, self.timestamp_ms)


class ProducerRow(NamedTuple):
    """One run of one producer, or a producer without a run, as in snapshots."""

    producer_id: int
    epoch: int
    run: Run | None
    last_ms: int
    """The time when the run was written. Without a run, the time of the producer's last write."""
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    txn_first_offset: int = NO_OFFSET
    """The first offset of the open transaction, or -1 if none is open."""


class ProducerDescription(NamedTuple):
    """The answer of DescribeProducers for one producer (KIP-664)."""

    producer_id: int
    epoch: int
    last_sequence: int
    """The last sequence number, or -1 if the producer has not written in this epoch."""
    last_ms: int
    coordinator_epoch: int
    txn_first_offset: int


class _Producer:
    __slots__ = ("coordinator_epoch", "epoch", "last_ms", "runs")

    def __init__(self, epoch: int, coordinator_epoch: int) -> None:
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        """The coordinator epoch of the last marker."""
        self.last_ms = NO_OFFSET
        """The time of the last write for the producer, in milliseconds."""
        self.runs: deque[Run] = deque(maxlen=RUNS_KEPT)
        """The runs, oldest first. None if only markers or coordinators have written in this epoch."""

    def next_sequence(self) -> int:
        return increment_sequence(self.runs[-1].last_sequence, 1) if self.runs else 0

    def note(self, batch: Run, *, is_stamped: bool) -> None:
        last = self.runs[-1] if self.runs else None
        if last is not None and _follows(last, batch) and (not is_stamped or last.timestamp_ms == batch.timestamp_ms):
            self.runs[-1] = _joined(last, batch)
        else:
            self.runs.append(batch)


class ProducerStates:
    """The producers of one log, in the order of their last write. The log calls `check` before an append and `note`
    after it."""

    def __init__(self, ids_max: int = DEFAULT_IDS_MAX) -> None:
        assert ids_max > 0, ids_max
        self._ids_max = ids_max
        self._producers: dict[int, _Producer] = {}
        self.transactions = OpenTransactions()
        self._has_seen_transactions = False

    def __len__(self) -> int:
        return len(self._producers)

    # Appending

    def check(
        self, headers: Sequence[BatchHeader], *, is_verified: bool = False, is_new_log: bool = False
    ) -> Run | None:
        """Checks a record set before its append. Returns the run that it repeats, or None if it may be appended.

        `is_verified` is True if the coordinator has confirmed that the transaction writes here. `is_new_log` is True if
        the log has never had a record. Raises the exception of INVALID_RECORD if the batches do not belong to one
        producer in sequence. Raises the exceptions of INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or
        INVALID_TXN_STATE."""
        first = headers[0]
        record_count = _count_in_sequence(headers)
        producer = self._producers.get(first.producer_id)
        if producer is not None:
            self.check_epoch(first.producer_id, first.producer_epoch)
            if first.base_sequence != NO_SEQUENCE:
                duplicate = self._check_sequence(first, producer, record_count)
                if duplicate is not None:
                    return duplicate
        elif is_new_log and first.base_sequence > 0:
            # An earlier request may have found the partition without its leader, and comes again.
            raise _OutOfOrderSequenceNumberError(
                f"producer {first.producer_id} sends sequence {first.base_sequence} to a partition that never had a"
                " record; expected 0"
            )
        if self._has_seen_transactions or first.attributes & TRANSACTIONAL_MASK:
            self._check_transaction(first, producer, is_verified)
        return None

    def _check_sequence(self, first: BatchHeader, producer: _Producer, record_count: int) -> Run | None:
        expected = 0 if first.producer_epoch > producer.epoch else producer.next_sequence()
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

    def _check_transaction(self, header: BatchHeader, producer: _Producer | None, is_verified: bool) -> None:
        first_offset = self.transactions.first_offset(header.producer_id)
        if not header.is_transactional:
            if first_offset is not None:
                raise _InvalidTxnStateError(
                    f"producer {header.producer_id} writes outside its transaction, which began at offset"
                    f" {first_offset}"
                )
            return
        goes_on = first_offset is not None and producer is not None and producer.epoch == header.producer_epoch
        if not goes_on and not is_verified:
            raise _InvalidTxnStateError(
                f"producer {header.producer_id} of epoch {header.producer_epoch} has no transaction open here"
            )

    def check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Raises the exception of INVALID_PRODUCER_EPOCH if the producer has a greater epoch."""
        producer = self._producers.get(producer_id)
        if producer is not None and producer_epoch < producer.epoch:
            raise _InvalidProducerEpochError(
                f"producer {producer_id} writes with epoch {producer_epoch}; the latest is {producer.epoch}"
            )

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Returns True if the producer's transaction is open, so that the coordinator need not be asked."""
        producer = self._producers.get(producer_id)
        is_open = self.transactions.first_offset(producer_id) is not None
        return is_open and producer is not None and producer.epoch == producer_epoch

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, *, transaction_version: int
    ) -> bool:
        """Returns True if the marker is in the log already and took effect.

        Raises the exception of INVALID_PRODUCER_EPOCH or of TRANSACTION_COORDINATOR_FENCED."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return False
        self.check_epoch(producer_id, producer_epoch)
        if coordinator_epoch < producer.coordinator_epoch:
            raise _TransactionCoordinatorFencedError(
                f"the marker for producer {producer_id} has coordinator epoch {coordinator_epoch}; the latest is"
                f" {producer.coordinator_epoch}"
            )
        if transaction_version < EPOCH_PER_TRANSACTION or producer_epoch > producer.epoch:
            return False
        if self.transactions.first_offset(producer_id) is not None:
            raise _InvalidProducerEpochError(
                f"the marker has epoch {producer_epoch} of producer {producer_id}, which has an open transaction in"
                " that epoch: the marker belongs to the previous transaction"
            )
        return True

    def note(
        self, header: BatchHeader, *, base_offset: int, now_ms: int, marker: ControlRecord | None = None
    ) -> CompletedTransaction | None:
        """Notes a batch that is in the log at `base_offset`. Its epoch becomes the producer's epoch.

        `header` is as stored, except for the offset. `marker` is the record of a control batch. A control batch without
        `marker` is ignored. Returns the transaction that the batch ended, or None."""
        if header.producer_id < 0 or (header.is_control and marker is None):
            return None
        producer = self._producers.pop(header.producer_id, None)
        if producer is None or header.producer_epoch != producer.epoch:
            coordinator_epoch = NO_COORDINATOR_EPOCH if producer is None else producer.coordinator_epoch
            producer = _Producer(header.producer_epoch, coordinator_epoch)
        self._producers[header.producer_id] = producer
        is_stamped = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        producer.last_ms = header.max_timestamp_ms if is_stamped else now_ms
        completed = None
        if marker is not None:
            completed = self._note_marker(header.producer_id, producer, marker, base_offset)
        else:
            if header.base_sequence != NO_SEQUENCE:
                batch = Run(header.base_sequence, base_offset, header.last_offset_delta + 1, producer.last_ms)
                producer.note(batch, is_stamped=is_stamped)
            if header.is_transactional:
                self._has_seen_transactions = True
                self.transactions.write(header.producer_id, base_offset)
        self._bound()
        return completed

    def _note_marker(
        self, producer_id: int, producer: _Producer, marker: ControlRecord, offset: int
    ) -> CompletedTransaction | None:
        self._has_seen_transactions = True
        producer.coordinator_epoch = marker.coordinator_epoch
        return self.transactions.complete(producer_id, offset, is_aborted=marker.type is ControlRecordType.ABORT)

    # Forgetting

    def _bound(self) -> None:
        if len(self._producers) > self._ids_max + len(self.transactions):
            is_open = self.transactions.first_offset
            del self._producers[next(number for number in self._producers if is_open(number) is None)]

    def expire(self, *, older_than_ms: int) -> None:
        """Forgets producers without writes since `older_than_ms` (`producer.id.expiration.ms`)."""
        is_open = self.transactions.first_offset
        gone = [
            number
            for number, producer in self._producers.items()
            if producer.last_ms < older_than_ms and is_open(number) is None
        ]
        for number in gone:
            del self._producers[number]

    def clear(self) -> None:
        self._producers.clear()
        self.transactions = OpenTransactions()
        self._has_seen_transactions = False

    def truncate_to(self, offset: int) -> bool:
        """Forgets writes at and after `offset`. Returns False if the state must be read from the log again, after
        `clear`.

        That is the case if a producer may have had runs before those that are kept. It is also the case after any
        transaction, because the transactions that markers ended are not known."""
        if self._has_seen_transactions:
            return False
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

    # Snapshots and descriptions

    def rows(self) -> Iterator[ProducerRow]:
        """Yields all runs of all producers. The runs of one producer are in order, oldest first."""
        for number, producer in self._producers.items():
            for run in producer.runs or (None,):
                yield self._row(number, producer, run)

    def _row(self, producer_id: int, producer: _Producer, run: Run | None) -> ProducerRow:
        return ProducerRow(
            producer_id,
            producer.epoch,
            run,
            producer.last_ms if run is None else run.timestamp_ms,
            producer.coordinator_epoch,
            self._open_since(producer_id),
        )

    def _open_since(self, producer_id: int) -> int:
        first_offset = self.transactions.first_offset(producer_id)
        return NO_OFFSET if first_offset is None else first_offset

    def restore(self, rows: Iterable[ProducerRow]) -> None:
        """Restores the state from the rows that `rows` returned."""
        open_since: dict[int, int] = {}
        for row in rows:
            producer = self._producers.get(row.producer_id)
            if producer is None or producer.epoch != row.epoch:
                producer = self._producers[row.producer_id] = _Producer(row.epoch, row.coordinator_epoch)
            producer.last_ms = row.last_ms
            if row.run is not None:
                producer.runs.append(row.run)
            if row.txn_first_offset != NO_OFFSET:
                open_since[row.producer_id] = row.txn_first_offset
            self._has_seen_transactions |= row.run is None or row.coordinator_epoch != NO_COORDINATOR_EPOCH
        self.transactions.restore(open_since.items())
        self._has_seen_transactions |= bool(open_since)

    def descriptions(self) -> Iterator[ProducerDescription]:
        """Yields a description of each producer."""
        for number, producer in self._producers.items():
            yield ProducerDescription(
                number,
                producer.epoch,
                producer.runs[-1].last_sequence if producer.runs else NO_SEQUENCE,
                producer.last_ms,
                producer.coordinator_epoch,
                self._open_since(number),
            )

    def open_transaction_last_ms(self) -> int | None:
        """Returns the time of the last write of the producer with the earliest open transaction, or None. Kafka detects
        hanging transactions with it (KIP-664). Other threads may call it."""
        producer_id = self.transactions.earliest_producer_id()
        producer = None if producer_id is None else self._producers.get(producer_id)
        return None if producer is None else producer.last_ms

    def check_invariants(self, log_end_offset: int) -> None:
        """Asserts that runs are in order, and that their records are in the log."""
        assert len(self._producers) <= self._ids_max + len(self.transactions), len(self._producers)
        self.transactions.check_invariants(log_end_offset)
        for number, producer in self._producers.items():
            assert producer.runs or self._has_seen_transactions, number
            end_offset = 0
            for run in producer.runs:
                assert run.record_count > 0, (number, run)
                assert run.base_offset >= end_offset, (number, run, end_offset)
                end_offset = run.next_offset
            assert end_offset <= log_end_offset, (number, end_offset, log_end_offset)


def _count_in_sequence(headers: Sequence[BatchHeader]) -> int:
    """Returns the number of records in the batches. Raises unless the batches are consecutive and of one producer and
    epoch."""
    first, count = headers[0], 0
    for header in headers:
        if header.producer_id != first.producer_id or header.producer_epoch != first.producer_epoch:
            raise _InvalidRecordError(
                f"the record set has batches of producers {first.producer_id} and {header.producer_id}, epochs"
                f" {first.producer_epoch} and {header.producer_epoch}; expected one producer and one epoch"
            )
        if (header.attributes ^ first.attributes) & TRANSACTIONAL_MASK:
            raise _InvalidRecordError(
                f"the record set of producer {first.producer_id} has batches inside and outside a transaction;"
                " expected only one kind"
            )
        expected = NO_SEQUENCE if first.base_sequence == NO_SEQUENCE else increment_sequence(first.base_sequence, count)
        if header.base_sequence != expected:
            raise _InvalidRecordError(
                f"a batch of producer {first.producer_id} has sequence {header.base_sequence}; expected {expected}"
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
