"""The log of one partition replica: an ordered list of segments, offsets, epochs. Kafka's `UnifiedLog`.

The log owns everything in its directory. The replica owns the high watermark and the limits of readers, and passes
them in. The callers decide when background work runs, and pass the time as an argument.

The log itself appends and truncates. Its parts do the rest, and callers use them directly:

| part | module | owns |
|---|---|---|
| `segments` | `log_segments.py` | the files: which segments exist, and where the log starts |
| `reader` | `log_reader.py` | nothing: finds records by offset and time, and aborted transactions |
| `flusher` | `log_flush.py` | the recovery point, and the unflushed part |
| `retention` | `log_retention.py` | nothing: moves the log start, drops expired segments |
| `compaction` | `log_compaction.py` | how far the log is compacted |
| `scrub` | `log_scrub.py` | nothing: plans the check of sealed segments |
| `replacement` | `segment_replacement.py` | whether a compaction or repair rewrites segments |
| `producers` | `producers/log_producers.py` | idempotent and transactional producers |
| `epochs` | `files/leader_epochs.py` | where each leader epoch began |

Invariants (`check_invariants`), in addition to those of the parts:
- first base offset <= log_start_offset <= log_end_offset; recovery point <= log_end_offset;
- a call that raises DiskFull has changed nothing.

Everything here runs on the event loop, without locks. Disk threads use only values that the log has planned:
`FlushJob` (plan, run, complete), `CleaningPlan`, `ScrubJob` and `PendingDeletion`. Appends and reads use the page cache
and stay on the event loop, because a thread would cost ten times as much as a small write.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import TopicId, TopicPartition
from klamm.records.control import ControlRecordType, end_transaction_marker
from klamm.records.header import BatchHeader, Buffer, read_header, validate_batch
from klamm_broker.log.files.leader_epochs import LeaderEpochCache, LeaderEpochFile
from klamm_broker.log.files.storage_failure import DiskFull, LogDir
from klamm_broker.log.log_config import LOG_APPEND_TIME, LogConfig
from klamm_broker.log.partition.log_compaction import LogCompaction
from klamm_broker.log.partition.log_flush import LogFlusher
from klamm_broker.log.partition.log_reader import LogReader
from klamm_broker.log.partition.log_retention import LogRetention
from klamm_broker.log.partition.log_scrub import LogScrub
from klamm_broker.log.partition.log_segments import LogSegments
from klamm_broker.log.partition.segment_replacement import SegmentReplacement
from klamm_broker.log.producers.log_producers import LogProducers
from klamm_broker.log.producers.producer_state import Run
from klamm_broker.log.producers.verification import VerificationGuard
from klamm_broker.log.segment.check_budget import CheckBudget
from klamm_broker.log.segment.offset_index import RELATIVE_OFFSET_MAX
from klamm_broker.log.segment.record_set import (
    AppendOrigin,
    CheckedBatch,
    CheckedSet,
    RecordSet,
    as_replicated,
    check_produced,
    check_replicated,
    groups_by_size,
    marker_of,
    with_offsets,
)
from klamm_broker.log.segment.segment import Segment
from klamm_broker.log.segment.segment_pool import SegmentPool
from klamm_broker.log.segment.time_index import NO_TIMESTAMP_MS
from klamm_broker.log.segment.transaction_index import AbortedTransaction
from klamm_server.runtime.disk import Disk

_OutOfOrderSequenceNumberError = EXCEPTIONS[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


class AppendResult(NamedTuple):
    """The offsets of an appended record set."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """The log append time of all its records, or -1 if they keep their own timestamps."""
    log_start_offset: int
    is_duplicate: bool = False
    """True if the record set was in the log already, so that nothing was written."""


class ShardWriter(NamedTuple):
    """The identity of the coordinator that owns a shard of an internal topic, as sent with its writes
    (`WriterFence`)."""

    producer_id: int
    producer_epoch: int
    transaction_version: int = 0
    """The transaction version of the marker that the coordinator writes."""
    base_offset: int | None = None
    """The log end offset that the coordinator expects, because only it appends here. None if it expects none."""


class TransactionEnd(NamedTuple):
    """The end of a producer's transaction, with the epoch of the coordinator that decided it (`TxnMarker`)."""

    producer_id: int
    producer_epoch: int
    is_committed: bool
    coordinator_epoch: int
    transaction_version: int


class ClientAppend(NamedTuple):
    """Records of a client that are to be appended."""

    records: memoryview | CheckedSet
    guard: VerificationGuard | None = None
    """The guard of the transaction that begins with these records (`LogProducers.begin_verification`)."""
    budget: CheckBudget | None = None
    """The bound of the checks on the event loop."""


class ShardAppend(NamedTuple):
    """Records of the coordinator that owns a shard, which are to be appended to it."""

    records: memoryview
    writer: ShardWriter


AppendRequest = ClientAppend | ShardAppend | TransactionEnd
"""Everything that a leader appends. A TransactionEnd is written as a marker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """The result of loading a partition directory (`log_loader.py`)."""

    segments: list[Segment]
    """The segments in order, at least one; the last is open."""
    epochs: LeaderEpochCache
    epoch_file: LeaderEpochFile
    producers: LogProducers
    log_start_offset: int
    recovery_point: int
    is_durable: bool
    """True if the broker was shut down cleanly, so that the whole log is on disk."""


class LogTraffic:
    """The bytes that clients have sent to a log and received from it since it was opened."""

    __slots__ = ("in_bytes", "out_bytes")

    def __init__(self) -> None:
        self.in_bytes = 0
        self.out_bytes = 0


class PartitionLog:
    """The log of one partition replica. Its parts have the other operations. Every call may raise LogDirFailure."""

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
        self.log_dir = log_dir
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.epochs = epochs = loaded.epochs
        self.producers = loaded.producers
        self.segments = segments = LogSegments(
            loaded.segments,
            loaded.producers,
            disk=disk,
            log_dir=log_dir,
            directory=directory,
            topic_partition=topic_partition,
            config=config,
            start_offset=loaded.log_start_offset,
            pool=pool,
            rng=rng,
        )
        self.flusher = LogFlusher(
            segments,
            epochs,
            loaded.epoch_file,
            recovery_point=loaded.recovery_point,
            is_durable=loaded.is_durable,
        )
        self.reader = LogReader(segments, epochs)
        self.retention = LogRetention(segments, self.flusher, epochs)
        self.compaction = LogCompaction(segments, self.flusher, self.reader)
        self.scrub = LogScrub(segments, self.flusher, self.compaction, epochs)
        self.replacement = SegmentReplacement(segments)
        self.traffic = LogTraffic()

    @property
    def config(self) -> LogConfig:
        """The settings of the topic. They may be replaced at any time. Existing segments keep their index settings."""
        return self.segments.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self.segments.config = config

    @property
    def directory(self) -> str:
        """The path of the directory with all files of the log."""
        return self.segments.directory

    @property
    def log_start_offset(self) -> int:
        """The offset of the first record that readers can fetch."""
        return self.segments.start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self.segments.active.next_offset

    # Appending

    def append_as_leader(
        self,
        records: Buffer | CheckedSet,
        *,
        leader_epoch: int,
        now_ms: int,
        guard: VerificationGuard | None = None,
        budget: CheckBudget | None = None,
    ) -> AppendResult:
        """Checks a record set, assigns offsets, and writes it with one system call. The caller makes the sync that
        `flush.messages` may require (`LogFlusher.owes_sync`).

        Batches that an idempotent producer sends again are not written again. `guard` belongs to the transaction that
        begins with this set (`begin_verification`). `records` is neither kept nor changed. Raises the exceptions of
        `check_produced` and `LogProducers.check`, and DiskFull."""
        self.segments.check_usable()
        if isinstance(records, CheckedSet):
            batches, now_ms = records.batches, records.now_ms
        else:
            batches = check_produced(
                records, self.segments.config, now_ms=now_ms, origin=AppendOrigin.CLIENT, budget=budget
            )
        try:
            headers = [header for header, _ in batches]
            duplicate = self.producers.check(headers, guard=guard, is_new_log=not self.log_end_offset)
        except _OutOfOrderSequenceNumberError:
            # A full disk may have refused the batch before this one, and then its producer sends both again.
            self.segments.log_dir.check_not_full(f"append to {self.topic_partition}")
            raise
        if duplicate is not None:
            return self._appended_before(duplicate)
        return self._append_checked(batches, leader_epoch, now_ms)

    def append_as_coordinator(
        self, records: Buffer, *, writer: ShardWriter, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """Appends records of the coordinator that owns an internal topic's shard, like `append_as_leader`.

        It may also be one control batch, or batches of a verified transaction without sequence numbers. Raises the
        exceptions of INVALID_PRODUCER_EPOCH if the shard has a later writer, and of OUT_OF_ORDER_SEQUENCE_NUMBER if the
        log does not end where the writer expects. Also raises the exceptions of `check_marker`."""
        self.segments.check_usable()
        batches = check_produced(records, self.segments.config, now_ms=now_ms, origin=AppendOrigin.COORDINATOR)
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
        """Writes the marker that ends a producer's open transaction, and fences the producer's smaller epochs (KIP-98).

        Raises the exception of INVALID_PRODUCER_EPOCH if the producer has a greater epoch, or if the marker belongs to
        the previous transaction. Raises the exception of TRANSACTION_COORDINATOR_FENCED, and DiskFull."""
        self.segments.check_usable()
        batch = end_transaction_marker(
            ControlRecordType.COMMIT if end.is_committed else ControlRecordType.ABORT,
            producer_id=end.producer_id,
            producer_epoch=end.producer_epoch,
            coordinator_epoch=end.coordinator_epoch,
            timestamp_ms=now_ms,
        )
        batches = check_produced(batch, self.segments.config, now_ms=now_ms, origin=AppendOrigin.COORDINATOR)
        return self._append_marker(batches, end.transaction_version, leader_epoch, now_ms)

    def _append_marker(
        self, batches: list[CheckedBatch], transaction_version: int, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        header, data = batches[0]
        marker = marker_of(header, data) if header.is_control else None
        if marker is None or len(batches) > 1:
            raise ErrorCode.INVALID_RECORD.exception(
                f"{self.topic_partition}: expected a single control batch with one end transaction marker"
            )
        is_written = self.producers.check_marker(header, marker, transaction_version=transaction_version)
        self.producers.end_verification(header, transaction_version=transaction_version)
        if is_written:
            # The marker is in the log already. It is committed when all current records are.
            end_offset = self.log_end_offset
            return AppendResult(end_offset - 1, end_offset - 1, NO_TIMESTAMP_MS, self.log_start_offset, True)
        return self._append_checked(batches, leader_epoch, now_ms)

    def _append_checked(self, batches: list[CheckedBatch], leader_epoch: int, now_ms: int) -> AppendResult:
        record_set = with_offsets(batches, self.log_end_offset, leader_epoch)
        self._append(record_set, now_ms)
        aborted = self.producers.note_appended(batches, base_offset=record_set.base_offset, now_ms=now_ms)
        if aborted:
            self._note_aborted(aborted)
        if leader_epoch != self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, record_set.base_offset)
        stamped = self.segments.config.message_timestamp_type == LOG_APPEND_TIME
        return AppendResult(
            record_set.base_offset,
            record_set.last_offset,
            now_ms if stamped else NO_TIMESTAMP_MS,
            self.log_start_offset,
        )

    def _note_aborted(self, aborted: list[AbortedTransaction]) -> None:
        for entry in aborted:
            self.segments.active.aborted.append(entry)

    def _appended_before(self, run: Run) -> AppendResult:
        stamped = self.segments.config.message_timestamp_type == LOG_APPEND_TIME
        return AppendResult(
            run.base_offset,
            run.next_offset - 1,
            run.timestamp_ms if stamped else NO_TIMESTAMP_MS,
            self.log_start_offset,
            is_duplicate=True,
        )

    def _written_before(self, batches: list[CheckedBatch], base_offset: int) -> AppendResult:
        """Returns the result for a coordinator's batch without sequence that was sent again and is already in the log
        at `base_offset`. Raises the exception of OUT_OF_ORDER_SEQUENCE_NUMBER if the log has another batch there."""
        ours, _ = batches[0]
        if len(batches) == 1 and self.log_start_offset <= base_offset < self.log_end_offset:
            there = read_header(self.reader.read(base_offset, 1).records)
            if there.base_offset == base_offset and _is_same(there, ours):
                stamp = there.max_timestamp_ms
                stamped = self.segments.config.message_timestamp_type == LOG_APPEND_TIME
                return AppendResult(
                    base_offset,
                    there.last_offset,
                    stamp if stamped else NO_TIMESTAMP_MS,
                    self.log_start_offset,
                    is_duplicate=True,
                )
        raise ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.exception(
            f"{self.topic_partition}: the batch expects to start at offset {base_offset}, but the log ends at"
            f" {self.log_end_offset}"
        )

    def append_as_follower(self, records: Buffer, *, leader_epoch: int, now_ms: int) -> AppendResult | None:
        """Appends the leader's batches with their offsets and epochs, up to the first one with an epoch after
        `leader_epoch`. They may fill several segments. Returns None if it appended nothing.

        The leader has checked the sequences and epochs of producers. Here they are only noted. Offsets may have gaps
        (compaction), but must start at or after the log end offset. Otherwise it raises UnexpectedOffset. Only an empty
        log accepts a first batch that begins earlier, if the leader's log starts within the batch. Raises
        CorruptBatchError or DiskFull. Earlier batches may then have been appended, and are synced if `flush.messages`
        requires it. The next fetch tells the leader that this replica has them."""
        self.segments.check_usable()
        log_start_offset = self.log_start_offset
        if log_start_offset == self.log_end_offset:
            self._restart_at(records, leader_epoch, now_ms)
        batches = check_replicated(
            records, self.topic_partition, end_offset=self.log_end_offset, leader_epoch=leader_epoch
        )
        if not batches:
            return None
        log_end_offset = self.log_end_offset
        try:
            for group in groups_by_size(batches, self.segments.config.segment_bytes):
                self._append_group(group, now_ms)
            if self.log_start_offset < log_start_offset:
                self.retention.start_at(log_start_offset)
        finally:
            self._sync_or_undo(log_end_offset, now_ms)
        first, last = batches[0].header, batches[-1].header
        return AppendResult(first.base_offset, last.last_offset, NO_TIMESTAMP_MS, self.log_start_offset)

    def _append_group(self, group: list[CheckedBatch], now_ms: int) -> None:
        self._append(as_replicated(group), now_ms)
        self._note_aborted(self.producers.note_replicated(group, now_ms=now_ms))
        for header, _ in group:
            if header.partition_leader_epoch > self.epochs.latest_epoch:
                self.epochs.assign(header.partition_leader_epoch, header.base_offset)

    def _sync_or_undo(self, log_end_offset: int, now_ms: int) -> None:
        """Syncs what was appended since `log_end_offset`. Removes it if the disk is full, so that it counts nowhere."""
        try:
            self.sync_owed()
        except DiskFull:
            self.truncate_to(log_end_offset, now_ms=now_ms)
            raise

    def sync_owed(self) -> None:
        """Syncs the records if `flush.messages` requires it. Blocks on the disk. Raises DiskFull."""
        if self.flusher.owes_sync:
            self.flusher.flush(only_records=True)

    def _restart_at(self, records: Buffer, leader_epoch: int, now_ms: int) -> None:
        """Restarts an empty log at the first batch's base offset, if DeleteRecords removed some of the batch's
        records."""
        header = read_header(records)
        if header.base_offset >= self.log_end_offset or header.partition_leader_epoch > leader_epoch:
            return
        first = validate_batch(memoryview(records), 0, allow_gaps=True)
        if first.next_offset > self.log_end_offset:
            self.truncate_fully_and_start_at(first.base_offset, now_ms=now_ms)

    def _append(self, record_set: RecordSet, now_ms: int) -> None:
        segments = self.segments
        try:
            if segments.active.should_roll(
                append_bytes=record_set.size_bytes,
                last_offset=record_set.last_offset,
                max_timestamp_ms=record_set.max_timestamp_ms,
                now_ms=now_ms,
                config=segments.config,
            ):
                segments.roll(self._next_base(record_set), now_ms)
            segments.active.append(record_set.buffers, record_set.batches, record_set.size_bytes)
        except OSError as error:
            raise segments.failed(error, "append to") from error
        self.flusher.note_append(now_ms)

    def _next_base(self, record_set: RecordSet) -> int:
        """Returns the base offset of a new segment: the log end offset, even if the records begin later (compaction).

        This lets recovery detect a segment that lost its end. If the gap is too wide for the indexes, returns the first
        record's offset."""
        if record_set.last_offset - self.log_end_offset <= RELATIVE_OFFSET_MAX:
            return self.log_end_offset
        return record_set.base_offset

    # Transactions

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the first transaction that is undecided, or whose marker is not committed. None if there
        is none."""
        return self.producers.first_unstable_offset

    def commit(self, high_watermark: int) -> None:
        """Notes that all records below the high watermark are committed, so that transactions with markers there become
        stable."""
        self.producers.commit(high_watermark)

    # Removing from the start

    def advance_log_start(self, offset: int, *, high_watermark: int) -> bool:
        """Moves the log start to `offset`, for DeleteRecords. Records below it are no longer served. The next retention
        pass removes their files.

        Returns False if the log already starts there or later. Raises the exception of OFFSET_OUT_OF_RANGE if `offset`
        is above the high watermark, because records that are not replicated must not be deleted."""
        self.segments.check_usable()
        if offset > high_watermark:
            raise ErrorCode.OFFSET_OUT_OF_RANGE.exception(
                f"{self.topic_partition}: cannot delete records up to {offset}; expected at most the high watermark"
                f" {high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self.retention.start_at(offset)
        return True

    # Truncating

    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        """Removes the records at and above `offset`. Returns False if the log already ends there or earlier.

        If the recovery point moved back, the caller must write the recovery-point checkpoint before it appends again
        (`LogCheckpoints.store_recovery_points`). Otherwise recovery after a crash could trust new records that are not
        on disk. The caller must also pass the high watermark to `commit` again."""
        segments = self.segments
        segments.check_usable()
        if offset >= segments.end_offset:
            return False
        if offset < segments.items[0].base_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return True
        try:
            segments.truncate_to(offset)
            self._truncated()
        except OSError as error:
            raise segments.failed(error, "truncation of") from error
        return True

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        """Removes all records, for a follower whose log the leader no longer covers. The next record gets `offset`."""
        segments = self.segments
        segments.check_usable()
        try:
            segments.truncate_fully(offset, now_ms)
            self.epochs.clear()
            segments.start_offset = offset
            self._truncated()
        except OSError as error:
            raise segments.failed(error, "truncation of") from error

    def _truncated(self) -> None:
        end_offset = self.log_end_offset
        self.epochs.truncate_from_end(end_offset)
        self.segments.start_offset = min(self.segments.start_offset, end_offset)
        self.compaction.truncated()
        self.flusher.truncated()

    # Closing and moving

    def close(self) -> None:
        """Flushes everything and closes the files. The log cannot be used afterwards.

        Different logs may be closed on different threads, after none of them is served any more."""
        segments = self.segments
        segments.check_usable()
        is_durable = self.flusher.is_durable
        try:
            self.producers.store(first_offset=segments.items[0].base_offset, end_offset=segments.end_offset)
            if not is_durable:
                segments.active.seal()
        except OSError as error:
            raise segments.failed(error, "close of") from error
        if not is_durable:
            self.flusher.flush()
        self.abandon()

    def abandon(self) -> None:
        """Closes the files without writing, because the disk failed or the log is being deleted."""
        self.segments.release()

    def relocate(self, directory: str) -> None:
        """Sets the new path, after the directory was renamed. Flushes that were planned earlier have no effect."""
        self.segments.relocate(directory)
        self.flusher.relocate(directory)

    def check_invariants(self) -> None:
        """Asserts the invariants in the module's docstring. Scans every segment."""
        self.segments.check_invariants()
        assert self.flusher.recovery_point <= self.log_end_offset, (self.flusher.recovery_point, self.log_end_offset)
        self.epochs.check_invariants()
        self.producers.check_invariants(self.log_end_offset)


def _is_same(there: BatchHeader, ours: BatchHeader) -> bool:
    """Returns True if two batches with the same base offset are the same. Only one writer appends here. The checksum is
    not compared, because a rewritten batch has another one."""
    return (there.producer_id, there.producer_epoch, there.last_offset_delta, there.is_control) == (
        ours.producer_id,
        ours.producer_epoch,
        ours.last_offset_delta,
        ours.is_control,
    )
