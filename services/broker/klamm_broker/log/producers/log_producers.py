"""Connects the parts of the producers' state of one log, in memory and in its snapshots. The log calls it at appends,
rolls, truncations and closing.

The rules are in `producer_state.py`, `open_transactions.py` and `verification.py`. The files are in
`producer_snapshot.py`, and reading the state from the log is in `producer_recovery.py`. All calls that write may raise
OSError. The log decides what this means for its directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from klamm.records.control import ControlRecord
from klamm.records.header import CONTROL_MASK, TRANSACTIONAL_MASK, BatchHeader
from klamm_broker.log.producers.open_transactions import aborted_by
from klamm_broker.log.producers.producer_recovery import reload_producers
from klamm_broker.log.producers.producer_snapshot import ProducerSnapshots
from klamm_broker.log.producers.producer_state import (
    DEFAULT_IDS_MAX,
    EPOCH_PER_TRANSACTION,
    ProducerDescription,
    ProducerStates,
    Run,
)
from klamm_broker.log.producers.verification import VerificationGuard, Verifications
from klamm_broker.log.segment.record_set import CheckedBatch, marker_of
from klamm_broker.log.segment.segment import Segment
from klamm_broker.log.segment.transaction_index import AbortedTransaction
from klamm_server.runtime.disk import Disk


class LogProducers:
    """The state of producers from all records of a log, including records that were deleted."""

    def __init__(self, disk: Disk, directory: str, *, ids_max: int = DEFAULT_IDS_MAX) -> None:
        self._disk = disk
        self._states = ProducerStates(ids_max)
        self._snapshots = ProducerSnapshots(disk, directory)
        self._verifications = Verifications(ids_max)

    def __len__(self) -> int:
        return len(self._states)

    def descriptions(self) -> list[ProducerDescription]:
        """Returns a description of each producer."""
        return list(self._states.descriptions())

    def reload(self, segments: Sequence[Segment]) -> None:
        """Reads the state again from snapshots and the log's `segments`."""
        reload_producers(self._states, self._snapshots, segments, self._disk)

    # Appending

    def check(
        self,
        headers: Sequence[BatchHeader],
        *,
        guard: VerificationGuard | None = None,
        is_verified: bool = False,
        is_new_log: bool = False,
    ) -> Run | None:
        """Checks a producer's record set as `ProducerStates.check`. Returns None for one without a producer id.

        `guard` comes from `begin_verification`, and is ignored if the transaction is open by now. `is_verified` is True
        if a coordinator writes for the producer, and `is_new_log` if the log has never had a record. Raises as both
        checks."""
        for header in headers:
            if header.producer_id >= 0:
                break
        else:
            return None
        first = headers[0]
        is_verified = is_verified or guard is not None
        duplicate = self._states.check(headers, is_verified=is_verified, is_new_log=is_new_log)
        if guard is None or duplicate is not None:
            return duplicate
        if not self._states.has_open_transaction(first.producer_id, first.producer_epoch):
            self._verifications.check(guard, first.base_sequence)
        return None

    def check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Raises the exception of INVALID_PRODUCER_EPOCH if the producer has a greater epoch."""
        self._states.check_epoch(producer_id, producer_epoch)

    def check_marker(self, header: BatchHeader, marker: ControlRecord, *, transaction_version: int) -> bool:
        """Returns True if the marker is in the log already and need not be written. Raises as
        `ProducerStates.check_marker`."""
        return self._states.check_marker(
            header.producer_id,
            header.producer_epoch,
            marker.coordinator_epoch,
            transaction_version=transaction_version,
        )

    def end_verification(self, header: BatchHeader, *, transaction_version: int) -> None:
        """Drops the guard of the transaction that a marker is about to end, so that it cannot write after the
        marker."""
        has_next_epoch = transaction_version >= EPOCH_PER_TRANSACTION
        self._verifications.end(header.producer_id, header.producer_epoch - has_next_epoch)

    def begin_verification(self, header: BatchHeader, *, now_ms: int) -> VerificationGuard | None:
        """Returns the guard for the append of a transaction's first batch. Returns None if the transaction is open, so
        that the coordinator need not be asked.

        Raises the exception of INVALID_PRODUCER_EPOCH."""
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
        self._states.check_epoch(producer_id, producer_epoch)
        if self._states.has_open_transaction(producer_id, producer_epoch):
            return None
        return self._verifications.begin(producer_id, producer_epoch, header.base_sequence, now_ms=now_ms)

    def note_appended(
        self, batches: Iterable[CheckedBatch], *, base_offset: int, now_ms: int
    ) -> list[AbortedTransaction]:
        """Notes batches that the leader wrote from `base_offset` on. Their headers do not have their offsets yet.

        Returns the transactions that they aborted."""
        aborted: list[AbortedTransaction] = []
        for batch in batches:
            if batch.header.producer_id >= 0:
                self._note(batch, base_offset, now_ms, aborted)
            base_offset += batch.header.last_offset_delta + 1
        return aborted

    def note_replicated(self, batches: Iterable[CheckedBatch], *, now_ms: int) -> list[AbortedTransaction]:
        """Notes batches that were written as the leader sent them, with their offsets. Returns as `note_appended`."""
        aborted: list[AbortedTransaction] = []
        for batch in batches:
            if batch.header.producer_id >= 0:
                self._note(batch, batch.header.base_offset, now_ms, aborted)
        return aborted

    def _note(self, batch: CheckedBatch, base_offset: int, now_ms: int, aborted: list[AbortedTransaction]) -> None:
        header = batch.header
        if not header.attributes & (TRANSACTIONAL_MASK | CONTROL_MASK):
            self._states.note(header, base_offset=base_offset, now_ms=now_ms)
            return
        marker = marker_of(header, batch.data) if header.is_control else None
        completed = self._states.note(header, base_offset=base_offset, now_ms=now_ms, marker=marker)
        if completed is not None and completed.is_aborted:
            aborted.append(aborted_by(completed))
        if header.is_transactional and not header.is_control:
            self._verifications.end(header.producer_id, header.producer_epoch)

    # The last stable offset

    def open_transaction_last_ms(self) -> int | None:
        """Returns the time of the last append of open transactions (`ProducerStates.open_transaction_last_ms`)."""
        return self._states.open_transaction_last_ms()

    def earliest_open_producer_id(self) -> int | None:
        """Returns the producer whose open transaction begins first, or None."""
        return self._states.transactions.earliest_producer_id()

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the first transaction that is undecided, or whose marker is not committed. None if there
        is none."""
        return self._states.transactions.first_unstable_offset

    def commit(self, high_watermark: int) -> None:
        """Notes that all records below the high watermark are committed."""
        self._states.transactions.commit(high_watermark)

    # Creation and removal of segments

    def rolled(self, base_offset: int) -> None:
        """Writes a snapshot for the new segment at `base_offset`, the end of the log."""
        self._snapshots.write(base_offset, self._states)

    def retain_snapshots(self, base_offsets: Sequence[int]) -> None:
        """Removes snapshots that belong to none of the log's segments, which have these base offsets."""
        self._snapshots.retain(base_offsets)

    def expire(self, *, older_than_ms: int) -> None:
        """Forgets producers without writes since `older_than_ms` (`producer.id.expiration.ms`)."""
        self._states.expire(older_than_ms=older_than_ms)
        self._verifications.expire(older_than_ms=older_than_ms)

    # Truncating and closing

    def prepare_truncation(self, offset: int) -> None:
        """Removes the snapshots beyond `offset`, before other records are written from `offset` on."""
        self._snapshots.truncate_to(offset)

    def truncated(self, segments: Sequence[Segment]) -> None:
        """Adapts the state to a truncated log, which has these `segments`."""
        end_offset = segments[-1].next_offset
        decided = self._states.transactions.decided_before(end_offset)
        if not self._states.truncate_to(end_offset):
            self.reload(segments)
            self._states.transactions.add_decided(decided)

    def clear(self) -> None:
        """Forgets everything, before all records are removed."""
        self._snapshots.truncate_to(-1)
        self._states.clear()

    def take_over(self, other: LogProducers, *, end_offset: int) -> None:
        """Takes the state of another log that is equal up to `end_offset`, including its state of removed records."""
        self._states.clear()
        self._states.restore(other._states.rows())
        self._states.transactions, self._verifications = other._states.transactions, other._verifications
        self._snapshots.write(end_offset, self._states)

    def relocate(self, directory: str) -> None:
        """Sets the new path, after the log's directory was renamed."""
        self._snapshots.directory = directory

    def store(self, *, first_offset: int, end_offset: int) -> None:
        """Writes a snapshot for the end of the log. `first_offset` is the base offset of the first segment."""
        if end_offset > max(self._snapshots.offsets, default=first_offset):
            self._snapshots.write(end_offset, self._states)

    def check_invariants(self, log_end_offset: int) -> None:
        self._states.check_invariants(log_end_offset)
