"""Moves the directories of deleted logs out of the way, many at once, beside the event loop.

1. `LogDeletion.plan`, on the event loop: takes the logs out of service.
2. `DeletionJob.run`, on a disk thread: renames every directory to `<topic>-<partition>.<hex>-delete`, durably. Then it
   stores checkpoints without those logs. Otherwise, after a crash, a new log of the same name would get the recovery
   point of the old one.
3. `LogDeletion.complete`, on the event loop: frees the names.

If a job finds the disk full, it is kept (`LogDeletion.postpone`) and run again later. Until then its names stay in use.

The renamed directories are removed after `file.delete.delay.ms` (`LogDeletion.remove_files`).
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from klamm.model import TopicPartition
from klamm_broker.log.dirs.directory_names import DELETE_SUFFIX, unique_name
from klamm_broker.log.dirs.hosted_logs import HostedLogs
from klamm_broker.log.dirs.log_checkpoints import LogCheckpoints
from klamm_broker.log.dirs.log_directories import LogDirectories
from klamm_broker.log.files.log_checkpoint import CheckpointJob
from klamm_broker.log.files.storage_failure import LogDir
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_broker.log.partition.pending_deletion import PendingDeletion
from klamm_server.runtime.disk import Disk

logger = logging.getLogger(__name__)


class DoomedLog(NamedTuple):
    """A log that is being deleted."""

    topic_partition: TopicPartition
    directory: str
    renamed: str
    """The new path of the directory."""
    due_ms: int
    """The time when the directory may be removed, in milliseconds."""

    def move_away(self, disk: Disk) -> None:
        """Renames the directory. Does nothing if an earlier run of the job has renamed it. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            disk.replace(self.directory, self.renamed)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionJob:
    """The deleted logs of one log directory."""

    disk: Disk
    log_dir: LogDir
    logs: tuple[DoomedLog, ...]
    checkpoint: CheckpointJob

    def run(self) -> None:
        """Renames the directories and stores the checkpoints. Raises LogDirFailure, after which the next start treats
        directories that were not renamed as strays. Raises DiskFull, after which the job can run again."""
        try:
            for doomed in self.logs:
                doomed.move_away(self.disk)
            self.disk.fsync_directory(self.log_dir.path)
        except OSError as error:
            raise self.log_dir.failed(error, f"deletion of {len(self.logs)} logs") from error
        self.checkpoint.run()


class LogDeletion:
    """The steps of a deletion that run on the event loop, and the removal of the renamed directories."""

    def __init__(
        self,
        logs: HostedLogs,
        directories: LogDirectories,
        checkpoints: LogCheckpoints,
        disk: Disk,
        rng: random.Random,
    ) -> None:
        self._logs = logs
        self._directories = directories
        self._checkpoints = checkpoints
        self._disk = disk
        self._rng = rng
        self._postponed: list[DeletionJob] = []

    def plan(self, doomed: Iterable[TopicPartition], *, now_ms: int) -> list[DeletionJob]:
        """Runs step 1: takes the logs out of service immediately.

        Every partition of `doomed` must have a log. Logs in an offline directory stay. The next start treats them as
        strays."""
        logs = self._logs
        leaving: dict[LogDir, list[DoomedLog]] = {}
        for topic_partition in doomed:
            log = logs.current[topic_partition]
            if log.log_dir.failure is not None:
                logger.error("could not delete the log of partition=%s: %s", topic_partition, log.log_dir.failure)
                continue
            logs.leaving[topic_partition] = logs.current.pop(topic_partition)
            leaving.setdefault(log.log_dir, []).append(self.doom(log, now_ms))
            future = logs.futures.pop(topic_partition, None)
            if future is not None and future.log_dir.failure is None:
                leaving.setdefault(future.log_dir, []).append(self.doom(future, now_ms))
        return [self._job(log_dir, doomed_logs) for log_dir, doomed_logs in leaving.items()]

    def plan_of_future(self, topic_partition: TopicPartition, *, now_ms: int) -> DeletionJob | None:
        """Cancels a move: takes the future log out of service and plans its deletion. Returns None if there is no
        future log, or if its directory is offline."""
        future = self._logs.futures.pop(topic_partition, None)
        if future is None:
            return None
        if future.log_dir.failure is not None:
            future.abandon()
            return None
        return self._job(future.log_dir, [self.doom(future, now_ms)])

    def doom(self, log: PartitionLog, now_ms: int) -> DoomedLog:
        """Closes a log that is being deleted. Returns the planned rename of its directory."""
        log.abandon()
        renamed = f"{log.log_dir.path}/{unique_name(log.topic_partition, DELETE_SUFFIX, self._rng)}"
        return DoomedLog(log.topic_partition, log.directory, renamed, now_ms + log.config.file_delete_delay_ms)

    def _job(self, log_dir: LogDir, logs: Sequence[DoomedLog]) -> DeletionJob:
        directory = self._directories.of(log_dir)
        for doomed in logs:
            directory.high_watermarks.pop(doomed.topic_partition, None)
        checkpoint = self._checkpoints.plan_of(log_dir)
        return DeletionJob(disk=self._disk, log_dir=log_dir, logs=tuple(logs), checkpoint=checkpoint)

    def complete(self, job: DeletionJob) -> list[PendingDeletion]:
        """Ends the deletion after `job.run()` (step 3). Returns the directories that must still be removed."""
        leaving = self._logs.leaving
        for doomed in job.logs:
            former = leaving.get(doomed.topic_partition)
            if former is not None and former.directory == doomed.directory:
                del leaving[doomed.topic_partition]
        return [
            PendingDeletion(log_dir=job.log_dir, paths=(doomed.renamed,), due_ms=doomed.due_ms) for doomed in job.logs
        ]

    def postpone(self, job: DeletionJob) -> None:
        """Keeps a job whose `run` raised DiskFull, so that it can run again later."""
        self._postponed.append(job)

    def take_postponed(self) -> list[DeletionJob]:
        """Removes and returns the postponed jobs, so that the caller can run them now."""
        postponed, self._postponed = self._postponed, []
        return postponed

    def remove_files(self, deletion: PendingDeletion) -> None:
        """Removes the files and directories of a deletion. Runs on a disk thread. Raises LogDirFailure."""
        deletion.log_dir.check_online()
        try:
            for path in deletion.paths:
                if path.endswith(DELETE_SUFFIX):
                    self._disk.remove_tree(path)
                else:
                    self._disk.remove([path])
        except OSError as error:
            raise deletion.log_dir.failed(error, "deletion") from error
