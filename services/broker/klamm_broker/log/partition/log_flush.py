"""Makes a log durable up to an offset, in three steps, so that the slow step runs beside the event loop.

There are two kinds of flush. A full flush moves the recovery point. After a crash, the log is trusted below that
offset, so its index entries and epochs must be on disk too. A flush of the records is for `flush.messages`. It moves
only the synced offset. A crash then loses no record below it, and recovery builds the rest from the records.

1. `LogFlusher.plan`, on the event loop: writes index entries to the page cache and returns a `FlushJob`.
2. `FlushJob.run`, on a disk thread: calls fdatasync. The job has its own descriptors (dup) and copies of all other
   values, so that concurrent rolls, truncations and deletions cannot make it sync a wrong file.
3. `LogFlusher.complete`, on the event loop: moves the recovery point, unless the log was truncated since the plan.

A job that is not run must be discarded, because otherwise its descriptors leak. `run` closes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from klamm.model import TopicPartition
from klamm_broker.log.files.leader_epochs import EpochEntry, LeaderEpochCache, LeaderEpochFile
from klamm_broker.log.files.storage_failure import LogDir
from klamm_broker.log.partition.log_segments import LogSegments
from klamm_broker.log.segment.segment import Segment
from klamm_server.runtime.disk import Disk


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushJob:
    """The files to sync before the recovery point may become `end_offset`."""

    disk: Disk
    log_dir: LogDir
    topic_partition: TopicPartition
    end_offset: int
    generation: int
    """The log's count of truncations when the job was planned."""
    log_fds: tuple[int, ...]
    index_paths: tuple[str, ...]
    directory: str | None
    """The partition directory if files were created in it since the last flush, otherwise None."""
    files_created: int
    """The log's count of created segments when the job was planned."""
    epoch_file: LeaderEpochFile
    epoch_version: int
    epochs: tuple[EpochEntry, ...] | None
    """The leader epochs to write, or None if the job syncs only records."""

    def run(self) -> None:
        """Blocks until everything is on disk. Raises LogDirFailure, which also takes the directory offline, or
        DiskFull."""
        try:
            for fd in self.log_fds:
                self.disk.fdatasync(fd)
            for path in self.index_paths:
                self._sync_index(path)
            self._sync_directory()
        except OSError as error:
            raise self.log_dir.failed(error, f"flush of {self.topic_partition}") from error
        finally:
            self.discard()

    def _sync_index(self, path: str) -> None:
        try:
            self.disk.sync_path(path)
        except FileNotFoundError:
            return  # the segment was deleted since, so it need not be durable

    def _sync_directory(self) -> None:
        try:
            if self.epochs is not None:
                self.epoch_file.write(self.epoch_version, self.epochs)
            if self.directory is not None:
                self.disk.fsync_directory(self.directory)
        except FileNotFoundError:
            return  # the partition was deleted since the flush was planned

    def discard(self) -> None:
        """Closes the descriptors without syncing."""
        for fd in self.log_fds:
            self.disk.close(fd)


class LogFlusher:
    """Knows how much of one log is on disk. The recovery point is never beyond the log end."""

    def __init__(
        self,
        segments: LogSegments,
        epochs: LeaderEpochCache,
        epoch_file: LeaderEpochFile,
        *,
        recovery_point: int,
        is_durable: bool,
    ) -> None:
        self._segments = segments
        self._epochs = epochs
        self._epoch_file = epoch_file
        self.recovery_point = recovery_point
        """All records below the recovery point are on disk, with their index entries and epochs."""
        self.synced_offset = recovery_point
        """All records below the synced offset are on disk. It is never below the recovery point."""
        self._generation_synced = 0
        self._files_synced = int(is_durable)
        self._unflushed_since_ms: int | None = None

    def note_append(self, now_ms: int) -> None:
        """Notes that the log has grown."""
        if self._unflushed_since_ms is None:
            self._unflushed_since_ms = now_ms

    @property
    def owes_sync(self) -> bool:
        """True while at least `flush.messages` records are not on disk."""
        segments = self._segments
        return segments.active.next_offset - self.synced_offset >= segments.config.flush_messages

    @property
    def acknowledgeable_offset(self) -> int:
        """The offset up to which `flush.messages` lets records be acknowledged and committed: the log end, or the
        synced offset while a sync is owed."""
        return self.synced_offset if self.owes_sync else self._segments.active.next_offset

    def advance(self, offset: int) -> None:
        """Moves the recovery point forward to `offset`, because records below it need no recovery."""
        self.recovery_point = max(self.recovery_point, offset)
        self.synced_offset = max(self.synced_offset, offset)

    def is_due(self, now_ms: int) -> bool:
        """Returns True if a sealed segment is not flushed, if a sync is owed, or if `flush.ms` is over."""
        if self.recovery_point < self._segments.active.base_offset or self.owes_sync:
            return True
        since_ms = self._unflushed_since_ms
        return since_ms is not None and now_ms - since_ms >= self._segments.config.flush_ms

    def plan(self, *, only_records: bool = False) -> FlushJob:
        """Runs step 1 of a flush, up to the current log end. Raises DiskFull."""
        segments = self._segments
        segments.check_usable()
        begin = self.synced_offset if only_records else self.recovery_point
        unflushed = segments.items[segments.slot_of(begin) :]
        fds: list[int] = []
        try:
            if not only_records:
                segments.active.write_indexes()
            for segment in unflushed:
                fds.append(segment.files.duplicate_fd())
        except OSError as error:
            for fd in fds:
                segments.disk.close(fd)
            raise segments.failed(error, "flush of") from error
        if not only_records:
            self._unflushed_since_ms = None
        return FlushJob(
            disk=segments.disk,
            log_dir=segments.log_dir,
            topic_partition=segments.topic_partition,
            end_offset=segments.end_offset,
            generation=segments.generation,
            log_fds=tuple(fds),
            index_paths=() if only_records else _index_paths(unflushed),
            directory=segments.directory if segments.created_count > self._files_synced else None,
            files_created=segments.created_count,
            epoch_file=self._epoch_file,
            epoch_version=self._epochs.version,
            epochs=None if only_records else self._epochs.entries,
        )

    def complete(self, job: FlushJob) -> None:
        """Runs step 3 of a flush, after `job.run()` has returned."""
        if job.epoch_file is not self._epoch_file or job.generation != self._segments.generation:
            # The log was deleted and created again since, or truncated. Other records may have the synced offsets.
            return
        self.synced_offset = max(self.synced_offset, job.end_offset)
        self._files_synced = max(self._files_synced, job.files_created)
        if job.epochs is not None:
            self.recovery_point = max(self.recovery_point, job.end_offset)
            self._generation_synced = job.generation

    def flush(self, *, only_records: bool = False) -> None:
        """Runs all three steps of a flush immediately. Blocks on the disk. Raises DiskFull."""
        job = self.plan(only_records=only_records)
        job.run()
        self.complete(job)

    @property
    def is_durable(self) -> bool:
        """True if a flush has nothing to do. Also True for a new log without records."""
        segments = self._segments
        if self._epoch_file.is_behind(self._epochs) or segments.generation != self._generation_synced:
            return False
        is_synced = self.recovery_point == segments.end_offset and segments.created_count == self._files_synced
        return is_synced or (segments.end_offset == 0 and segments.created_count == 1)

    def truncated(self) -> None:
        """Limits the recovery point to the log end after a truncation, and writes the epochs, which must not go beyond
        the log. Raises OSError."""
        end_offset = self._segments.end_offset
        self.recovery_point = min(self.recovery_point, end_offset)
        self.synced_offset = min(self.synced_offset, end_offset)
        self._epoch_file.write(self._epochs.version, self._epochs.entries)

    def relocate(self, directory: str) -> None:
        """Sets the new directory, after the log's directory was renamed."""
        self._epoch_file.relocate(directory)


def _index_paths(segments: Sequence[Segment]) -> tuple[str, ...]:
    return tuple(path for segment in segments for path in segment.files.index_paths)
