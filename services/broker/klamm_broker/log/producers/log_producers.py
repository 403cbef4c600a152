"""The producers of one log, in memory and in its snapshots: what the log calls as it grows, rolls, is cut and closed.

The rules are in `producer_state.py`, `open_transactions.py` and `verification.py`, the files in `producer_snapshot.py`,
reading the state from the log in `producer_recovery.py`. All calls that write may raise OSError; the log says what
that means for its directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from klamm.records.control import ControlRecord
from klamm.records.header import CONTROL_MASK, TRANSACTIONAL_MASK, BatchHeader
from klamm_broker.log.files.disk import Disk
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


class LogProducers:
    """What all records of a log say of their producers, those deleted since included."""

    def __init__(self, disk: Disk, directory: str, *, ids_max: int = DEFAULT_IDS_MAX) -> None:
        self._disk = disk
        self._states = ProducerStates(ids_max)
        self._snapshots = ProducerSnapshots(disk, directory)
        self._verifications = Verifications(ids_max)

    def __len__(self) -> int:
        return len(self._states)

    def descriptions(self) -> list[ProducerDescription]:
        """All of them."""
        return list(self._states.descriptions())

    def reload(self, segments: Sequence[Segment]) -> None:
        """Finds out from the log, which consists of `segments`."""
        reload_producers(self._states, self._snapshots, segments, self._disk)

    # Appending

    def check(
        self, headers: Sequence[BatchHeader], *, guard: VerificationGuard | None = None, is_verified: bool = False
    ) -> Run | None:
        """What `ProducerStates.check` says of a producer's record set; None for one without a producer id.

        `guard`: what `begin_verification` gave for its transaction; of no interest if that is open by now.
        `is_verified`: a coordinator writes for it. Raises as both checks."""
        for header in headers:
            if header.producer_id >= 0:
                break
        else:
            return None
        first = headers[0]
        duplicate = self._states.check(headers, is_verified=is_verified or guard is not None)
        if guard is None or duplicate is not None:
            return duplicate
        if not self._states.has_open_transaction(first.producer_id, first.producer_epoch):
            self._verifications.check(guard, first.base_sequence)
        return None

    def check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Raises the exception of INVALID_PRODUCER_EPOCH when a greater one was seen."""
        self._states.check_epoch(producer_id, producer_epoch)

    def check_marker(self, header: BatchHeader, marker: ControlRecord, *, transaction_version: int) -> bool:
        """Whether the marker need not be written. Raises as `ProducerStates.check_marker`."""
        return self._states.check_marker(
            header.producer_id,
            header.producer_epoch,
            marker.coordinator_epoch,
            transaction_version=transaction_version,
        )

    def end_verification(self, header: BatchHeader, *, transaction_version: int) -> None:
        """A marker with that header is about to be written: its transaction may not write any more."""
        has_next_epoch = transaction_version >= EPOCH_PER_TRANSACTION
        self._verifications.end(header.producer_id, header.producer_epoch - has_next_epoch)

    def begin_verification(self, header: BatchHeader, *, now_ms: int) -> VerificationGuard | None:
        """Before the append of a transaction's batch: what to show with it once its coordinator was asked; None if
        there is nothing to ask.

        Raises the exception of INVALID_PRODUCER_EPOCH."""
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
        self._states.check_epoch(producer_id, producer_epoch)
        if self._states.has_open_transaction(producer_id, producer_epoch):
            return None
        return self._verifications.begin(producer_id, producer_epoch, header.base_sequence, now_ms=now_ms)

    def note_appended(
        self, batches: Iterable[CheckedBatch], *, base_offset: int, now_ms: int
    ) -> list[AbortedTransaction]:
        """The leader wrote the batches, which do not have their offsets yet, from `base_offset` on.

        Returns the transactions that they aborted."""
        aborted: list[AbortedTransaction] = []
        for batch in batches:
            self._note(batch, base_offset, now_ms, aborted)
            base_offset += batch.header.last_offset_delta + 1
        return aborted

    def note_replicated(self, batches: Iterable[CheckedBatch], *, now_ms: int) -> list[AbortedTransaction]:
        """The batches were written as the leader sent them: they have their offsets. Returns as `note_appended`."""
        aborted: list[AbortedTransaction] = []
        for batch in batches:
            self._note(batch, batch.header.base_offset, now_ms, aborted)
        return aborted

    def _note(self, batch: CheckedBatch, base_offset: int, now_ms: int, aborted: list[AbortedTransaction]) -> None:
        header = batch.header
        if header.producer_id < 0:
            return
        if not header.attributes & (TRANSACTIONAL_MASK | CONTROL_MASK):
            self._states.note(header, base_offset=base_offset, now_ms=now_ms)
            return
        marker = marker_of(header, batch.data) if header.is_control else None
        completed = self._states.note(header, base_offset=base_offset, now_ms=now_ms, marker=marker)
        if completed is not None and completed.is_aborted:
            aborted.append(aborted_by(completed))
        if header.is_transactional and not header.is_control:
            self._verifications.end(header.producer_id, header.producer_epoch)

    # How far the log is stable

    def open_transaction_last_ms(self) -> int | None:
        """Returns the time of the last append of open transactions (`ProducerStates.open_transaction_last_ms`)."""
        return self._states.open_transaction_last_ms()

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the first transaction begins that is undecided, or decided by a marker that is not committed."""
        return self._states.transactions.first_unstable_offset

    def commit(self, high_watermark: int) -> None:
        """Everything below the high watermark is committed."""
        self._states.transactions.commit(high_watermark)

    # Segments come and go

    def rolled(self, base_offset: int) -> None:
        """A segment begins at `base_offset`, which is the end of the log."""
        self._snapshots.write(base_offset, self._states)

    def retain_snapshots(self, base_offsets: Sequence[int]) -> None:
        """The log consists of the segments with these base offsets now."""
        self._snapshots.retain(base_offsets)

    def expire(self, *, older_than_ms: int) -> None:
        """Forgets producers that have not written since (`producer.id.expiration.ms`)."""
        self._states.expire(older_than_ms=older_than_ms)
        self._verifications.expire(older_than_ms=older_than_ms)

    # Truncating and closing

    def prepare_truncation(self, offset: int) -> None:
        """Called before other records are written from `offset` on: removes the snapshots that speak of the present
        ones."""
        self._snapshots.truncate_to(offset)

    def truncated(self, segments: Sequence[Segment]) -> None:
        """The log was cut, and consists of `segments`."""
        end_offset = segments[-1].next_offset
        decided = self._states.transactions.decided_before(end_offset)
        if not self._states.truncate_to(end_offset):
            self.reload(segments)
            self._states.transactions.add_decided(decided)

    def clear(self) -> None:
        """Forgets everything, before all records are dropped."""
        self._snapshots.truncate_to(-1)
        self._states.clear()

    def take_over(self, other: LogProducers, *, end_offset: int) -> None:
        """The log has become equal to another, up to `end_offset`: what that one knows of records gone counts too."""
        self._states.clear()
        self._states.restore(other._states.rows())
        self._states.transactions, self._verifications = other._states.transactions, other._verifications
        self._snapshots.write(end_offset, self._states)

    def relocate(self, directory: str) -> None:
        """The log's directory was renamed."""
        self._snapshots.directory = directory

    def store(self, *, first_offset: int, end_offset: int) -> None:
        """Makes a snapshot for the end of the log, which begins with the segment of `first_offset`."""
        if end_offset > max(self._snapshots.offsets, default=first_offset):
            self._snapshots.write(end_offset, self._states)

    def check_invariants(self, log_end_offset: int) -> None:
        self._states.check_invariants(log_end_offset)
