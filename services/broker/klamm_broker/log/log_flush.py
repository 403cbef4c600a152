"""Making a log durable up to an offset, in three steps so that the slow one runs beside the event loop.

1. `PartitionLog.plan_flush`, on the event loop: writes index entries to the page cache and takes a `FlushJob`.
2. `FlushJob.run`, on a disk thread: the fdatasyncs. The job holds descriptors of its own (dup) and copies of the
   rest, so that rolls, truncations and deletions meanwhile cannot make it sync the wrong file or none.
3. `PartitionLog.complete_flush`, on the event loop: moves the recovery point, unless the log was truncated meanwhile.

A job that is not run must be discarded, or its descriptors leak; one that ran has closed them.
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm.model import TopicPartition
from klamm_broker.log.disk import Disk
from klamm_broker.log.leader_epochs import EpochEntry, LeaderEpochFile
from klamm_broker.log.storage_failure import LogDir


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushJob:
    """All that must be on disk before the recovery point may become `end_offset`."""

    disk: Disk
    log_dir: LogDir
    topic_partition: TopicPartition
    end_offset: int
    generation: int
    """The log's count of truncations when the job was planned."""
    log_fds: tuple[int, ...]
    index_paths: tuple[str, ...]
    directory: str | None
    """The partition directory if files in it were created since the last flush."""
    files_created: int
    """The log's count of segments begun when the job was planned."""
    epoch_file: LeaderEpochFile
    epoch_version: int
    epochs: tuple[EpochEntry, ...]

    def run(self) -> None:
        """Blocks until all of it is on disk. Raises LogDirFailure, which also takes the dir offline, or DiskFull."""
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
            return  # the segment was deleted meanwhile: nothing of it needs to be durable

    def _sync_directory(self) -> None:
        try:
            self.epoch_file.write(self.epoch_version, self.epochs)
            if self.directory is not None:
                self.disk.fsync_directory(self.directory)
        except FileNotFoundError:
            return  # the partition was deleted meanwhile

    def discard(self) -> None:
        """Gives the descriptors back without syncing."""
        for fd in self.log_fds:
            self.disk.close(fd)
