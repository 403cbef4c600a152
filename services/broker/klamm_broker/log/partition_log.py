"""The log of one partition replica: an ordered list of segments, offsets, epochs. Kafka's `UnifiedLog`.

Owns everything in its directory. What it does not own: the high watermark and who may read up to where (the
replica tells it), and when background work runs (the shell calls, with the time as an argument).

Invariants (`check_invariants`):
- segments are in order of base offset and do not overlap; the last one is *active*, open, and alone appended to;
- first base offset <= log_start_offset <= log_end_offset; recovery_point <= log_end_offset;
- a call that raises DiskFull has changed nothing.

Everything here runs on the event loop; there are no locks. What a disk thread does for a log it does with values
handed out here: `FlushJob` (plan_flush, run, complete_flush), `CleaningPlan`, `ScrubJob` and `PendingDeletion`.
Appending and reading go to the page cache and stay on the loop: handing a small write to a thread costs ten times the
write.
"""

from __future__ import annotations

import logging
import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from klamm.errors import ErrorCode
from klamm.model import TopicId, TopicPartition
from klamm.records.control import ControlRecordType, end_transaction_marker
from klamm.records.header import BatchHeader, Buffer, iter_headers, read_header, validate_batch
from klamm_broker.log.cleanable import LogToClean, SealedSegment, log_to_clean
from klamm_broker.log.disk import Disk
from klamm_broker.log.leader_epochs import LeaderEpochCache, LeaderEpochFile
from klamm_broker.log.log_cleaning import CleaningPlan, CleaningSource
from klamm_broker.log.log_config import NO_LIMIT_MS, LogConfig, TimestampSource
from klamm_broker.log.log_flush import FlushJob
from klamm_broker.log.log_producers import LogProducers
from klamm_broker.log.log_scrubbing import ScrubJob
from klamm_broker.log.offset_index import RELATIVE_OFFSET_MAX, CorruptIndexError
from klamm_broker.log.producer_state import Run
from klamm_broker.log.record_set import (
    AppendOrigin,
    CheckedBatch,
    RecordSet,
    as_replicated,
    check_produced,
    marker_of,
    with_offsets,
)
from klamm_broker.log.retention import SegmentSummary, expired_count
from klamm_broker.log.segment import (
    FileSlice,
    Segment,
    TimestampHit,
    roll_jitter_ms,
)
from klamm_broker.log.segment_check import SegmentBounds
from klamm_broker.log.segment_pool import SegmentPool
from klamm_broker.log.segment_swap import DELETED_SUFFIX, announce, take_place
from klamm_broker.log.storage_failure import LogDir, UnexpectedOffset
from klamm_broker.log.time_index import NO_TIMESTAMP_MS
from klamm_broker.log.transaction_index import AbortedTransaction
from klamm_broker.log.verification import VerificationGuard

logger = logging.getLogger(__name__)
T = TypeVar("T")


class AppendResult(NamedTuple):
    """Where a record set went."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """The time all its records were given, or -1 if they keep their own."""
    log_start_offset: int
    is_duplicate: bool = False
    """It was there already and nothing was written."""


class ShardWriter(NamedTuple):
    """The owner of the shard of an internal topic, as it presents itself (`WriterFence`)."""

    producer_id: int
    producer_epoch: int
    transaction_version: int = 0
    """Of the marker that it writes."""
    base_offset: int | None = None
    """Where it believes that the log ends: it is the only one to append here."""


class TransactionEnd(NamedTuple):
    """How a producer's transaction ended, and who says so (`TxnMarker`)."""

    producer_id: int
    producer_epoch: int
    is_committed: bool
    coordinator_epoch: int
    transaction_version: int


class FetchData(NamedTuple):
    """What a read found."""

    records: bytes
    """Whole batches, as on disk; the first holds the offset asked for. Empty at the end."""
    log_start_offset: int
    log_end_offset: int


class Planned(Protocol):
    """What was worked out for a log on a thread."""

    @property
    def generation(self) -> int:
        """The log's count of truncations."""


class LocatedRecords(NamedTuple):
    """Where the records of a read lie; valid until the next call that changes the log."""

    segment: Segment
    part: FileSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingDeletion:
    """Files that were renamed out of the way and are to be removed, on a disk thread, at `due_ms`."""

    log_dir: LogDir
    paths: tuple[str, ...]
    due_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """What loading a partition directory found (`log_loader.py`)."""

    segments: list[Segment]
    """In order, at least one; the last is open."""
    epochs: LeaderEpochCache
    epoch_file: LeaderEpochFile
    producers: LogProducers
    log_start_offset: int
    recovery_point: int
    is_durable: bool
    """Whether an orderly stop left it, and all of it is on disk."""


class PartitionLog:
    """See the module's docstring. Every call may raise LogDirFailure."""

    def __init__(
        self,
        *,
        disk: Disk,
        log_dir: LogDir,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: TopicId | None,
        config: LogConfig,
        loaded: LoadedLog,
        pool: SegmentPool,
        rng: random.Random,
    ) -> None:
        self._disk = disk
        self.log_dir = log_dir
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        """May be replaced at any time; segments that exist keep their index settings."""
        self.epochs = loaded.epochs
        self._epoch_file = loaded.epoch_file
        self.producers = loaded.producers
        self._pool = pool
        self._rng = rng
        self._segments = loaded.segments
        self._bases = [segment.base_offset for segment in loaded.segments]
        self._active = loaded.segments[-1]
        self.log_start_offset = loaded.log_start_offset
        self.recovery_point = loaded.recovery_point
        """All records below are on disk, with the index entries and epochs that belong to them."""
        self.cleaned_to_offset = 0
        """Compaction has been through all records below; never beyond the recovery point."""
        self.is_being_rewritten = False
        """A compaction or a repair rewrites it: one at a time, for both write `.cleaned` files here."""
        self._generation = self._generation_synced = 0
        self._files_created, self._files_synced = 1, int(loaded.is_durable)
        self._unflushed_since_ms: int | None = None
        self._active_since_ms: int | None = None
        """When the active segment was begun; None: it was there when the log was opened."""
        self._closed = False

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._active.next_offset

    @property
    def size_bytes(self) -> int:
        """Of the `.log` files."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segment_base_offsets(self) -> tuple[int, ...]:
        return tuple(self._bases)

    def _check_usable(self) -> None:
        self.log_dir.check_online()
        if self._closed:
            raise ErrorCode.KAFKA_STORAGE_ERROR.exception(f"the log of {self.topic_partition} is closed")

    # Appending

    def append_as_leader(
        self, records: Buffer, *, leader_epoch: int, now_ms: int, guard: VerificationGuard | None = None
    ) -> AppendResult:
        """Checks a record set, gives it the next offsets and writes it with one system call.

        What an idempotent producer sends again is not written again. `guard`: of the transaction that begins with it
        (`begin_verification`). `records` is not kept and not changed. Raises what `check_produced` and
        `LogProducers.check` raise, or DiskFull."""
        self._check_usable()
        batches = check_produced(records, self.config, now_ms=now_ms, origin=AppendOrigin.CLIENT)
        duplicate = self.producers.check([header for header, _ in batches], guard=guard)
        if duplicate is not None:
            return self._appended_before(duplicate)
        return self._append_checked(batches, leader_epoch, now_ms)

    def append_as_coordinator(
        self, records: Buffer, *, writer: ShardWriter, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """As `append_as_leader`, from the owner of the shard of an internal topic: also one control batch, or batches
        of a transaction without sequence, whose coordinator the writer has asked already.

        Raises the exception of INVALID_PRODUCER_EPOCH when the shard has a later writer, of
        OUT_OF_ORDER_SEQUENCE_NUMBER when the log does not end where the writer believes, and what `check_marker`
        raises."""
        self._check_usable()
        batches = check_produced(records, self.config, now_ms=now_ms, origin=AppendOrigin.COORDINATOR)
        self.producers.check_epoch(writer.producer_id, writer.producer_epoch)
        if writer.base_offset is not None and writer.base_offset != self.log_end_offset:
            return self._written_before(batches, writer.base_offset)
        if any(header.is_control for header, _ in batches):
            return self._append_marker(batches, writer.transaction_version, leader_epoch, now_ms)
        duplicate = self.producers.check([header for header, _ in batches], is_verified=True)
        if duplicate is not None:
            return self._appended_before(duplicate)
        return self._append_checked(batches, leader_epoch, now_ms)

    def append_marker(self, end: TransactionEnd, *, leader_epoch: int, now_ms: int) -> AppendResult:
        """Ends a producer's transaction, if it has one open here, and fences its smaller epochs (KIP-98).

        Raises the exception of INVALID_PRODUCER_EPOCH when the producer has a greater one, or when the marker is of the
        transaction before, of TRANSACTION_COORDINATOR_FENCED, or DiskFull."""
        self._check_usable()
        batch = end_transaction_marker(
            ControlRecordType.COMMIT if end.is_committed else ControlRecordType.ABORT,
            producer_id=end.producer_id,
            producer_epoch=end.producer_epoch,
            coordinator_epoch=end.coordinator_epoch,
            timestamp_ms=now_ms,
        )
        batches = check_produced(batch, self.config, now_ms=now_ms, origin=AppendOrigin.COORDINATOR)
        return self._append_marker(batches, end.transaction_version, leader_epoch, now_ms)

    def _append_marker(
        self, batches: list[CheckedBatch], transaction_version: int, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        header, data = batches[0]
        marker = marker_of(header, data) if header.is_control else None
        if marker is None or len(batches) > 1:
            raise ErrorCode.INVALID_RECORD.exception(
                f"{self.topic_partition}: a control batch has one end transaction marker and stands alone"
            )
        is_written = self.producers.check_marker(header, marker, transaction_version=transaction_version)
        self.producers.end_verification(header, transaction_version=transaction_version)
        if is_written:
            # It is in the log, and committed no later than everything that is there now.
            end_offset = self.log_end_offset
            return AppendResult(end_offset - 1, end_offset - 1, NO_TIMESTAMP_MS, self.log_start_offset, True)
        return self._append_checked(batches, leader_epoch, now_ms)

    def _append_checked(self, batches: list[CheckedBatch], leader_epoch: int, now_ms: int) -> AppendResult:
        record_set = with_offsets(batches, self.log_end_offset, leader_epoch)
        self._append(record_set, now_ms)
        self._note_aborted(self.producers.note_appended(batches, base_offset=record_set.base_offset, now_ms=now_ms))
        if leader_epoch != self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, record_set.base_offset)
        stamped = self.config.timestamp_source is TimestampSource.LOG_APPEND_TIME
        return AppendResult(
            record_set.base_offset,
            record_set.last_offset,
            now_ms if stamped else NO_TIMESTAMP_MS,
            self.log_start_offset,
        )

    def _note_aborted(self, aborted: list[AbortedTransaction]) -> None:
        for entry in aborted:
            self._active.append_aborted(entry)

    def _appended_before(self, run: Run) -> AppendResult:
        stamped = self.config.timestamp_source is TimestampSource.LOG_APPEND_TIME
        return AppendResult(
            run.base_offset,
            run.next_offset - 1,
            run.timestamp_ms if stamped else NO_TIMESTAMP_MS,
            self.log_start_offset,
            is_duplicate=True,
        )

    def _written_before(self, batches: list[CheckedBatch], base_offset: int) -> AppendResult:
        """What a batch without sequence was answered that is in the log, at `base_offset`; it comes again, or late."""
        ours, _ = batches[0]
        if len(batches) == 1 and self.log_start_offset <= base_offset < self.log_end_offset:
            there = read_header(self.read(base_offset, 1).records)
            if there.base_offset == base_offset and _is_same(there, ours):
                stamp = there.max_timestamp_ms
                stamped = self.config.timestamp_source is TimestampSource.LOG_APPEND_TIME
                return AppendResult(
                    base_offset,
                    there.last_offset,
                    stamp if stamped else NO_TIMESTAMP_MS,
                    self.log_start_offset,
                    is_duplicate=True,
                )
        raise ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.exception(
            f"{self.topic_partition}: a batch is to begin at {base_offset}; the log ends at {self.log_end_offset}"
        )

    def append_as_follower(self, records: Buffer, *, now_ms: int) -> AppendResult:
        """Appends what the leader sent, offsets and epochs as they are; more than one segment may be filled.

        The leader has checked sequences and epochs of producers; here they are only remembered. Offsets may have gaps
        (compaction) but go on from the log end offset, else UnexpectedOffset; only in an empty log the first batch may
        begin before, where the leader's log starts within it. Raises a CorruptBatchError or DiskFull; batches before
        the one that failed may have been appended."""
        self._check_usable()
        log_start_offset = self.log_start_offset
        if log_start_offset == self.log_end_offset:
            self._make_room_for(records, now_ms)
        batches = self._check_replicated(records)
        for group in self._groups(batches):
            self._append(as_replicated(group), now_ms)
            self._note_aborted(self.producers.note_replicated(group, now_ms=now_ms))
            for header, _ in group:
                if header.partition_leader_epoch > self.epochs.latest_epoch:
                    self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        if self.log_start_offset < log_start_offset:
            self._start_at(log_start_offset)
        first, last = batches[0].header, batches[-1].header
        return AppendResult(first.base_offset, last.last_offset, NO_TIMESTAMP_MS, self.log_start_offset)

    def _make_room_for(self, records: Buffer, now_ms: int) -> None:
        """Begins the empty log where the first batch does, if records of it were deleted (DeleteRecords)."""
        if read_header(records).base_offset >= self.log_end_offset:
            return
        first = validate_batch(memoryview(records), 0, allow_gaps=True)
        if first.next_offset > self.log_end_offset:
            self.truncate_fully_and_start_at(first.base_offset, now_ms=now_ms)

    def _check_replicated(self, records: Buffer) -> list[CheckedBatch]:
        view = memoryview(records)
        batches: list[CheckedBatch] = []
        expected = self.log_end_offset
        for position, _ in iter_headers(view):
            header = validate_batch(view, position, allow_gaps=True)
            if header.base_offset < expected:
                raise UnexpectedOffset(
                    f"{self.topic_partition}: batch of offset {header.base_offset}; expected {expected} or later"
                )
            expected = header.next_offset
            batch = CheckedBatch(header, view[position : position + header.size_bytes])
            if header.is_control:
                marker_of(*batch)
            batches.append(batch)
        if not batches:
            raise UnexpectedOffset(f"{self.topic_partition}: an empty record set")
        return batches

    def _groups(self, batches: list[CheckedBatch]) -> Iterator[list[CheckedBatch]]:
        """Runs of batches that fit one segment; a batch larger than `segment.bytes` has one to itself."""
        group: list[CheckedBatch] = []
        size = 0
        for batch in batches:
            if group and size + batch.header.size_bytes > self.config.segment_bytes:
                yield group
                group, size = [], 0
            group.append(batch)
            size += batch.header.size_bytes
        yield group

    def _append(self, record_set: RecordSet, now_ms: int) -> None:
        try:
            if self._active.should_roll(
                append_bytes=record_set.size_bytes,
                last_offset=record_set.last_offset,
                max_timestamp_ms=record_set.max_timestamp_ms,
                now_ms=now_ms,
                config=self.config,
            ):
                self._roll(self._next_base(record_set), now_ms)
            self._active.append(record_set.buffers, record_set.batches, record_set.size_bytes)
        except OSError as error:
            raise self.log_dir.failed(error, f"append to {self.topic_partition}") from error
        if self._unflushed_since_ms is None:
            self._unflushed_since_ms = now_ms
        if self.log_end_offset - self.recovery_point >= self.config.flush_messages:
            self.flush()

    def _next_base(self, record_set: RecordSet) -> int:
        """A new segment begins where the last one ends, though the records may begin later (compaction).

        So recovery can tell a segment that lost its end from one that is complete. Only a gap too wide for the
        indexes makes an exception."""
        if record_set.last_offset - self.log_end_offset <= RELATIVE_OFFSET_MAX:
            return self.log_end_offset
        return record_set.base_offset

    def _roll(self, base_offset: int, now_ms: int) -> None:
        """Seals the active segment and begins one at `base_offset`; one without records is replaced."""
        sealed = self._active
        sealed.seal()
        self._begin_segment(base_offset, now_ms)
        self.producers.rolled(base_offset)
        self._pool.use(sealed)
        if not sealed.size_bytes:
            self._delete_segments(len(self._segments) - 2, len(self._segments) - 1)

    def _begin_segment(self, base_offset: int, now_ms: int) -> None:
        segment = Segment(
            self._disk,
            self.directory,
            base_offset,
            config=self.config,
            created_ms=now_ms,
            roll_jitter_ms=roll_jitter_ms(self.config, self._rng),
        )
        segment.create()
        self._segments.append(segment)
        self._bases.append(base_offset)
        self._active = segment
        self._active_since_ms = now_ms
        self._files_created += 1

    # Reading

    def read(self, offset: int, max_bytes: int, *, max_offset: int | None = None, min_one: bool = True) -> FetchData:
        """Batches from the one that holds `offset` on, up to `max_bytes` and below `max_offset` (default: all).

        With `min_one` a first batch larger than `max_bytes` is given whole (KIP-74). Raises the exception of
        OFFSET_OUT_OF_RANGE, or a CorruptBatchError where the log is damaged."""
        located = self.locate(offset, max_bytes, max_offset=max_offset, min_one=min_one)
        if located is None or not located.part.size_bytes:
            return FetchData(b"", self.log_start_offset, self.log_end_offset)
        records = self._reading(lambda: located.segment.read(located.part))
        return FetchData(records, self.log_start_offset, self.log_end_offset)

    def locate(
        self, offset: int, max_bytes: int, *, max_offset: int | None = None, min_one: bool = True
    ) -> LocatedRecords | None:
        """As `read`, but where the records are instead of the records; None if there are none to read yet."""
        self._check_usable()
        self._check_in_range(offset)
        end_offset = self.log_end_offset if max_offset is None else min(max_offset, self.log_end_offset)
        if offset >= end_offset:
            return None
        for slot in range(self._slot_of(offset), len(self._segments)):
            part = self._in_segment(slot, lambda s: self._locate_in(s, offset, max_bytes, end_offset, min_one))
            if part is not None:
                return LocatedRecords(self._segments[slot], part)
        return None

    def _check_in_range(self, offset: int) -> None:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ErrorCode.OFFSET_OUT_OF_RANGE.exception(
                f"{self.topic_partition}: offset {offset}; the log has {self.log_start_offset} to {self.log_end_offset}"
            )

    def _slot_of(self, offset: int) -> int:
        return max(0, bisect_right(self._bases, offset) - 1)

    def _locate_in(
        self, segment: Segment, offset: int, max_bytes: int, end_offset: int, min_one: bool
    ) -> FileSlice | None:
        end_position = segment.size_bytes
        if end_offset < self._end_offset_of(segment):
            limit = segment.find_batch(end_offset)
            end_position = end_position if limit is None else limit[0]
        return segment.locate(offset, max_bytes, end_position, min_one=min_one)

    def _end_offset_of(self, segment: Segment) -> int:
        if segment is self._active:
            return segment.next_offset
        return self._bases[bisect_right(self._bases, segment.base_offset)]

    def _in_segment(self, slot: int, look: Callable[[Segment], T]) -> T:
        """Looks something up in a segment, rebuilding its indexes once if they turn out not to fit the log."""
        try:
            segment = self._opened(self._segments[slot])
            try:
                return look(segment)
            except CorruptIndexError as error:
                logger.warning("segment=%s index=rebuilt reason=%s", segment.path(), error)
                segment.rebuild_indexes()
                return look(segment)
        except OSError as error:
            raise self._failed_read(error) from error

    def _opened(self, segment: Segment) -> Segment:
        return segment if segment is self._active else self._pool.use(segment)

    def _reading(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except OSError as error:
            raise self._failed_read(error) from error

    def _failed_read(self, error: OSError) -> Exception:
        return self.log_dir.failed(error, f"read of {self.topic_partition}")

    # Transactions

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the first transaction begins that is undecided, or decided by a marker that is not committed."""
        return self.producers.first_unstable_offset

    def commit(self, high_watermark: int) -> None:
        """Everything below the high watermark is committed: markers there count."""
        self.producers.commit(high_watermark)

    def aborted_in(self, located: LocatedRecords, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that have records in a read from `start_offset` on, bounded by `end_offset`; maybe
        some that begin after it."""
        if not any(segment.aborted_count for segment in self._segments[self._slot_of(start_offset) :]):
            return []
        segment, part = located
        bound = segment.offset_from(part.position + part.size_bytes)
        end_offset = min(end_offset, self._end_offset_of(segment) if bound is None else bound)
        return self.aborted_between(start_offset, end_offset)

    def aborted_between(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that wrote, or whose marker is, in `[start_offset, end_offset)`.

        That is said where their markers are: there, or in any later segment."""
        found: list[AbortedTransaction] = []
        for slot in range(self._slot_of(start_offset), len(self._segments)):
            if not self._segments[slot].aborted_count:
                continue
            entries, is_all = self._in_segment(slot, lambda s: s.aborted_between(start_offset, end_offset))
            found += entries
            if is_all:
                break
        return found

    # Offsets by time

    def find_timestamp(self, timestamp_ms: int) -> TimestampHit | None:
        """The first record from the log start on with this timestamp or a later one."""
        self._check_usable()
        for slot in range(self._slot_of(self.log_start_offset), len(self._segments)):
            if self._segments[slot].largest.timestamp_ms < timestamp_ms:
                continue
            hit = self._in_segment(slot, lambda s: s.find_timestamp(timestamp_ms, self.log_start_offset))
            if hit is not None:
                return hit
        return None

    def find_max_timestamp(self) -> TimestampHit | None:
        """The first record that has the largest timestamp of the log (KIP-734); None for a log without any."""
        self._check_usable()
        first = self._slot_of(self.log_start_offset)
        start = self.log_start_offset
        # In the first segment the record with the largest timestamp may be one that was deleted.
        in_first = self._in_segment(first, lambda s: s.largest_timestamp_from(start))
        later = [segment.largest.timestamp_ms for segment in self._segments[first + 1 :]]
        timestamp_ms = max([in_first, *later])
        return None if timestamp_ms == NO_TIMESTAMP_MS else self.find_timestamp(timestamp_ms)

    def earliest(self) -> TimestampHit:
        """The log start offset with its epoch (-1 if unknown); it has no timestamp."""
        epoch = self.epochs.epoch_for_offset(self.log_start_offset)
        return TimestampHit(NO_TIMESTAMP_MS, self.log_start_offset, epoch)

    # Removing from the start

    def advance_log_start(self, offset: int, *, high_watermark: int) -> bool:
        """DeleteRecords: records below `offset` are no longer served; their files go with the next retention pass.

        False if the log starts there or later already. Raises the exception of OFFSET_OUT_OF_RANGE above the
        high watermark: what is not replicated must not be deleted."""
        self._check_usable()
        if offset > high_watermark:
            raise ErrorCode.OFFSET_OUT_OF_RANGE.exception(
                f"{self.topic_partition}: cannot delete up to {offset}; the high watermark is {high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self._start_at(offset)
        return True

    def apply_retention(self, *, now_ms: int, high_watermark: int) -> PendingDeletion | None:
        """Drops the oldest segments that expired; their files are renamed now and to be removed when due."""
        self._check_usable()
        count = expired_count(
            [self._summary(segment) for segment in self._segments],
            self.config,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=high_watermark,
        )
        if not count:
            return None
        try:
            if count == len(self._segments):
                self._roll(self.log_end_offset, now_ms)
            paths = self._rename_deleted(self._segments[:count])
            self._forget_segments(0, count)
            self.producers.retain_snapshots(self._bases)
        except OSError as error:
            raise self.log_dir.failed(error, f"retention of {self.topic_partition}") from error
        self._start_at(max(self.log_start_offset, self._bases[0]))
        due_ms = now_ms + self.config.file_delete_delay_ms
        return PendingDeletion(log_dir=self.log_dir, paths=paths, due_ms=due_ms)

    def _summary(self, segment: Segment) -> SegmentSummary:
        largest_ms = segment.largest.timestamp_ms
        if largest_ms < 0:
            largest_ms = self._reading(lambda: self._disk.modified_ms(segment.path()))
        return SegmentSummary(self._end_offset_of(segment), segment.size_bytes, largest_ms)

    def _start_at(self, offset: int) -> None:
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        self.recovery_point = max(self.recovery_point, min(offset, self.log_end_offset))

    def _rename_deleted(self, segments: list[Segment]) -> tuple[str, ...]:
        """Oldest first, so that a crash in between leaves a log without a gap."""
        paths = []
        for segment in segments:
            for path in segment.paths:
                self._disk.replace(path, path + DELETED_SUFFIX)
                paths.append(path + DELETED_SUFFIX)
        return tuple(paths)

    def _forget_segments(self, start: int, end: int) -> list[Segment]:
        gone = self._segments[start:end]
        del self._segments[start:end], self._bases[start:end]
        for segment in gone:
            self._pool.forget(segment)
            segment.release()
        return gone

    def _delete_segments(self, start: int, end: int) -> None:
        """Newest first, so that a crash in between leaves a log without a gap."""
        for segment in reversed(self._forget_segments(start, end)):
            self._disk.remove(segment.paths)

    # Compacting (`log_cleaning.py`)

    def to_clean(self, *, last_stable_offset: int, now_ms: int) -> LogToClean:
        """What compaction would find to do."""
        sealed = [self._sealed(segment) for segment in self._segments[:-1]]
        return log_to_clean(
            self.topic_partition,
            sealed,
            cleaned_to_offset=self.cleaned_to_offset,
            limit_offset=min(last_stable_offset, self.recovery_point),
            config=self.config,
            now_ms=now_ms,
        )

    def _sealed(self, segment: Segment) -> SealedSegment:
        end_offset = self._end_offset_of(segment)
        return SealedSegment(segment.base_offset, end_offset, segment.size_bytes, segment.largest.timestamp_ms)

    def roll_overdue(self, *, now_ms: int) -> bool:
        """Rolls the active segment if its first record is older than `max.compaction.lag.ms`; whether it did.

        Records with timestamps of long ago count from the segment's begin, or each look would roll. Raises DiskFull."""
        lag_ms = self.config.max_compaction_lag_ms
        if not self.config.is_compacted or lag_ms == NO_LIMIT_MS or not self._active.size_bytes or self._closed:
            return False
        if self._active_since_ms is not None and now_ms - self._active_since_ms <= lag_ms:
            return False
        if self._reading(lambda: self._active.age_ms(now_ms)) <= lag_ms:
            return False
        self._check_usable()
        try:
            self._roll(self.log_end_offset, now_ms)
        except OSError as error:
            raise self.log_dir.failed(error, f"roll of {self.topic_partition}") from error
        return True

    def compaction_delay_ms(self, to_clean: LogToClean, *, now_ms: int) -> int:
        """For how long a record has been due by `max.compaction.lag.ms`; 0 or less: none is."""
        if self.config.max_compaction_lag_ms == NO_LIMIT_MS:
            return 0
        dirty = (one for one in self._segments[:-1] if self._end_offset_of(one) > to_clean.first_dirty_offset)
        times = [self._reading(segment.first_timestamp_ms) for segment in dirty]
        earliest_ms = min((time for time in times if time >= 0), default=now_ms)
        return now_ms - self.config.max_compaction_lag_ms - earliest_ms

    def plan_cleaning(self, to_clean: LogToClean) -> CleaningPlan:
        """What a thread needs to know to clean the log up to the first uncleanable offset."""
        self._check_usable()
        sources = [
            self._source(segment)
            for segment in self._segments[:-1]
            if self._end_offset_of(segment) <= to_clean.first_uncleanable_offset
        ]
        return CleaningPlan(
            topic_partition=self.topic_partition,
            directory=self.directory,
            config=self.config,
            sources=tuple(sources),
            first_dirty_offset=to_clean.first_dirty_offset,
            aborted=tuple(self.aborted_between(sources[0].base_offset, sources[-1].end_offset)) if sources else (),
            generation=self._generation,
        )

    def _source(self, segment: Segment) -> CleaningSource:
        return CleaningSource(
            segment, segment.path(), segment.base_offset, self._end_offset_of(segment), segment.size_bytes
        )

    # Scrubbing (`log_scrubbing.py`)

    def scrub_sources(self) -> list[CleaningSource]:
        """The sealed segments that are on disk and have records that are not deleted."""
        limit = self.recovery_point
        return [
            source
            for source in map(self._source, self._segments[:-1])
            if self.log_start_offset < source.end_offset <= limit and not source.segment.has_unwritten_aborted
        ]

    def plan_scrub(self, source: CleaningSource) -> ScrubJob:
        """What a thread needs to know to check one of `scrub_sources`."""
        self._check_usable()
        config = self.config
        return ScrubJob(
            disk=self._disk,
            topic_partition=self.topic_partition,
            directory=self.directory,
            config=config,
            source=source,
            bounds=SegmentBounds(
                base_offset=source.base_offset,
                end_offset=source.end_offset,
                size_bytes=source.size_bytes,
                log_start_offset=self.log_start_offset,
                is_gapless=not config.is_compacted and not self.cleaned_to_offset,
            ),
            epochs=self.epochs.entries,
            aborted_count=source.segment.aborted_count,
            generation=self._generation,
        )

    # Replacing segments

    def has_planned(self, plan: Planned, sources: Sequence[CleaningSource]) -> bool:
        """Whether these segments are still side by side in the log, and hold what they held."""
        segments = [source.segment for source in sources]
        slot = bisect_left(self._bases, segments[0].base_offset) if segments else 0
        unchanged = self._segments[slot : slot + len(segments)] == segments
        return unchanged and self._generation == plan.generation and not self._closed

    def replace_segments(
        self, sources: Sequence[CleaningSource], cleaned: Segment, *, now_ms: int, action: str = "compaction"
    ) -> PendingDeletion:
        """Puts a segment that was written anew in the place of those it was made from, which `has_planned`.

        Raises DiskFull, and then nothing has changed, or LogDirFailure."""
        self._check_usable()
        slot = bisect_left(self._bases, sources[0].base_offset)
        replaced = [source.segment for source in sources]
        try:
            announce(self._disk, cleaned)
        except OSError as error:
            raise self.log_dir.failed(error, f"{action} of {self.topic_partition}") from error
        try:
            paths = take_place(self._disk, cleaned, replaced)
        except OSError as error:
            # Half-way between the old segments and the new one: only the recovery of a restart gets out of it.
            raise self.log_dir.take_offline(error, f"{action} of {self.topic_partition}") from error
        self._forget_segments(slot, slot + len(replaced))
        self._segments.insert(slot, cleaned)
        self._bases.insert(slot, cleaned.base_offset)
        try:
            self.producers.retain_snapshots(self._bases)
        except OSError as error:
            raise self.log_dir.take_offline(error, f"{action} of {self.topic_partition}") from error
        due_ms = now_ms + self.config.file_delete_delay_ms
        return PendingDeletion(log_dir=self.log_dir, paths=tuple(paths), due_ms=due_ms)

    # Truncating

    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        """Cuts the records at and above `offset`; False if the log ends there or before.

        When the recovery point moved back, the caller writes the recovery-point checkpoint before it appends again
        (`LogManager.store_recovery_points`): else a crash could trust records that took the place of those. What is
        committed is to be said again (`commit`)."""
        self._check_usable()
        if offset >= self.log_end_offset:
            return False
        if offset < self._bases[0]:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return True
        try:
            self.producers.prepare_truncation(offset)
            self._delete_segments(bisect_right(self._bases, offset), len(self._segments))
            self._activate_last()
            self._active.truncate_to(offset)
            self.producers.truncated(self._segments)
            self._truncated()
        except OSError as error:
            raise self.log_dir.failed(error, f"truncation of {self.topic_partition}") from error
        return True

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        """Drops everything; the next record gets `offset`. For a follower whose log the leader no longer covers."""
        self._check_usable()
        try:
            self.producers.clear()
            self._delete_segments(0, len(self._segments))
            self._begin_segment(offset, now_ms)
            self.epochs.clear()
            self.log_start_offset = offset
            self._truncated()
        except OSError as error:
            raise self.log_dir.failed(error, f"truncation of {self.topic_partition}") from error

    def _activate_last(self) -> None:
        """The last segment is the one appended to from now on, and no longer the pool's to close."""
        self._active = self._segments[-1]
        self._pool.use(self._active)
        self._pool.forget(self._active)

    def _truncated(self) -> None:
        self._generation += 1
        end_offset = self.log_end_offset
        self.epochs.truncate_from_end(end_offset)
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.recovery_point = min(self.recovery_point, end_offset)
        self.cleaned_to_offset = min(self.cleaned_to_offset, end_offset)
        self._write_epochs()

    def _write_epochs(self) -> None:
        self._epoch_file.write(self.epochs.version, self.epochs.entries)

    # Flushing and closing

    def flush_due(self, now_ms: int) -> bool:
        """Whether a sealed segment or `flush.ms` waits for a flush."""
        if self.recovery_point < self._active.base_offset:
            return True
        since_ms = self._unflushed_since_ms
        return since_ms is not None and now_ms - since_ms >= self.config.flush_ms

    def plan_flush(self) -> FlushJob:
        """Step 1 of a flush (`log_flush.py`), up to the current log end. Raises DiskFull."""
        self._check_usable()
        first = self._slot_of(self.recovery_point)
        fds: list[int] = []
        try:
            self._active.write_indexes()
            for segment in self._segments[first:]:
                fds.append(segment.duplicate_fd())
        except OSError as error:
            for fd in fds:
                self._disk.close(fd)
            raise self.log_dir.failed(error, f"flush of {self.topic_partition}") from error
        paths = tuple(path for segment in self._segments[first:] for path in segment.index_paths)
        self._unflushed_since_ms = None
        return FlushJob(
            disk=self._disk,
            log_dir=self.log_dir,
            topic_partition=self.topic_partition,
            end_offset=self.log_end_offset,
            generation=self._generation,
            log_fds=tuple(fds),
            index_paths=paths,
            directory=self.directory if self._files_created > self._files_synced else None,
            files_created=self._files_created,
            epoch_file=self._epoch_file,
            epoch_version=self.epochs.version,
            epochs=self.epochs.entries,
        )

    def complete_flush(self, job: FlushJob) -> None:
        """Step 3 of a flush, after `job.run()` returned."""
        if job.generation != self._generation:
            return  # some of what was synced is gone, and other records may have its offsets
        self.recovery_point = max(self.recovery_point, job.end_offset)
        self._files_synced = job.files_created
        self._generation_synced = job.generation

    def flush(self) -> None:
        """All three steps here and now: blocks for the disk. Raises DiskFull."""
        job = self.plan_flush()
        job.run()
        self.complete_flush(job)

    @property
    def _is_durable(self) -> bool:
        """Whether a flush would find nothing to do; also a new log that nothing was written to."""
        if self._epoch_file.is_behind(self.epochs) or self._generation != self._generation_synced:
            return False
        is_synced = self.recovery_point == self.log_end_offset and self._files_created == self._files_synced
        return is_synced or (self.log_end_offset == 0 and self._files_created == 1)

    def close(self) -> None:
        """Makes everything durable and gives the files back; the log is of no use afterwards.

        Different logs may be closed on different threads once none of them is served any more."""
        self._check_usable()
        is_durable = self._is_durable
        try:
            self.producers.store(first_offset=self._bases[0], end_offset=self.log_end_offset)
            if not is_durable:
                self._active.seal()
        except OSError as error:
            raise self.log_dir.failed(error, f"close of {self.topic_partition}") from error
        if not is_durable:
            self.flush()
        self.abandon()

    def abandon(self) -> None:
        """Gives the files back without writing: the disk failed, or the log is being deleted."""
        self._closed = True
        for segment in self._segments:
            self._pool.forget(segment)
            segment.release()

    def relocate(self, directory: str) -> None:
        """The directory was renamed to this. Flushes planned before do not count."""
        self.directory = directory
        for segment in self._segments:
            segment.directory = directory
        self._epoch_file.relocate(directory)
        self.producers.relocate(directory)
        self._generation += 1

    def check_invariants(self) -> None:
        """Asserts what the module's docstring states; costs a scan of every segment."""
        assert self._bases == [segment.base_offset for segment in self._segments]
        assert self._active is self._segments[-1]
        assert self._bases[0] <= self.log_start_offset <= self.log_end_offset, (self._bases, self.log_end_offset)
        assert self.recovery_point <= self.log_end_offset, (self.recovery_point, self.log_end_offset)
        self.epochs.check_invariants()
        self.producers.check_invariants(self.log_end_offset)
        for segment in self._segments:
            assert not segment.lacks_transactions, segment.base_offset
            self._opened(segment).check_invariants()
        for before, after in zip(self._segments, self._segments[1:], strict=False):
            assert before.next_offset <= after.base_offset, (before.next_offset, after.base_offset)


def _is_same(there: BatchHeader, ours: BatchHeader) -> bool:
    """Of two batches that begin in one place, where only one writer appends; a rewritten one has another checksum."""
    return (there.producer_id, there.producer_epoch, there.last_offset_delta, there.is_control) == (
        ours.producer_id,
        ours.producer_epoch,
        ours.last_offset_delta,
        ours.is_control,
    )
