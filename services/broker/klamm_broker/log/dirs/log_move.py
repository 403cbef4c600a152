"""Moves a log to another log directory of its broker (KIP-113). The table has the files on disk after each step.

A *future* log, `<topic>-<partition>.<hex>-future`, is a separate log in the other directory that copies the current
log. When it has all records, it replaces the current log:

| step | on disk | a crash after it leaves |
|---|---|---|
| `FutureCreationJob` | the directory, `partition.metadata`, `replaces.metadata` | both logs, and the start continues |
| `LogMoves.swap` | the future log has its final name, and gets new records | both, and the start deletes the old one |
| `SwapJob`, part 1 | that name is durable, and the old directory is renamed to `…-delete` | the new log |
| `SwapJob`, part 2 | the checkpoints have the new log, and `replaces.metadata` is removed | the new log |

`replaces.metadata` has the directory.id of the old directory, so that the start knows which log is out of date. If a
future log has no current log although all log directories are readable, its topic is deleted, so the log is removed.
"""

from __future__ import annotations

import contextlib
import random
import uuid
from dataclasses import dataclass

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_broker.log.dirs.directory_names import FUTURE_SUFFIX, current_name, parse_directory_name, unique_name
from klamm_broker.log.dirs.hosted_logs import HostedLogs
from klamm_broker.log.dirs.log_checkpoints import LogCheckpoints
from klamm_broker.log.dirs.log_creation import NewLog
from klamm_broker.log.dirs.log_deletion import DoomedLog, LogDeletion
from klamm_broker.log.dirs.log_directories import LogDirectories
from klamm_broker.log.dirs.log_opener import LogOpener
from klamm_broker.log.files.log_checkpoint import CheckpointJob
from klamm_broker.log.files.partition_metadata import decode_uuid, encode_uuid, write_topic_id
from klamm_broker.log.files.storage_failure import LogDir
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_broker.log.partition.pending_deletion import PendingDeletion
from klamm_server.runtime.disk import Disk

REPLACES_FILE = "replaces.metadata"


def write_replaced(disk: Disk, directory: str, directory_id: uuid.UUID) -> None:
    """Stores the id of the log directory whose log this log will replace, durably. Raises OSError."""
    disk.write_atomically(
        f"{directory}/{REPLACES_FILE}", f"version: 0\ndirectory_id: {encode_uuid(directory_id)}\n".encode()
    )


def read_replaced(disk: Disk, directory: str) -> uuid.UUID | None:
    """Returns the id of the log directory whose log is replaced, or None without a valid file. Raises OSError."""
    path = f"{directory}/{REPLACES_FILE}"
    if not disk.exists(path):
        return None
    _, _, text = disk.read_file(path).decode("utf-8", "replace").partition("directory_id:")
    try:
        return decode_uuid(text.strip())
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FutureCreationJob:
    """Creates an empty, durable future log. Runs on a disk thread. `LogMoves.complete` follows."""

    disk: Disk
    log_dir: LogDir
    new: NewLog
    directory: str
    replaces: uuid.UUID
    """The directory.id of the log directory with the current log."""
    opener: LogOpener
    now_ms: int

    def run(self) -> PartitionLog:
        """Creates the future log. Raises LogDirFailure, which also takes the directory offline, or DiskFull."""
        self.log_dir.check_online()
        try:
            self.disk.make_directory(self.directory)
            write_topic_id(self.disk, self.directory, self.new.topic_id)
            write_replaced(self.disk, self.directory, self.replaces)
            log = self._open()
            self.disk.fsync_directory(self.log_dir.path)
        except OSError as error:
            # Remove it, because the next start would otherwise continue a move that was refused.
            with contextlib.suppress(OSError):
                self.disk.remove_tree(self.directory)
            raise self.log_dir.failed(error, f"creation of {self.directory}") from error
        return log

    def _open(self) -> PartitionLog:
        new = self.new
        return self.opener.open(
            self.log_dir, self.directory, new.topic_partition, new.topic_id, new.config, now_ms=self.now_ms
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapJob:
    """Makes the swap durable, and renames the replaced log's directory. Runs on a disk thread. `LogMoves.complete_swap`
    follows."""

    disk: Disk
    log_dir: LogDir
    """The new log directory of the log."""
    directory: str
    old_log_dir: LogDir
    doomed: DoomedLog
    """The replaced log."""
    checkpoints: tuple[CheckpointJob, ...]

    def run(self) -> None:
        """Runs the job. Raises LogDirFailure, which also takes one of the directories offline. The next start then
        completes the swap. Raises DiskFull, after which the job can run again."""
        try:
            self.disk.fsync_directory(self.log_dir.path)
        except OSError as error:
            raise self.log_dir.failed(error, f"move of {self.doomed.topic_partition}") from error
        try:
            self.doomed.move_away(self.disk)
            self.disk.fsync_directory(self.old_log_dir.path)
        except OSError as error:
            raise self.old_log_dir.failed(error, f"move of {self.doomed.topic_partition}") from error
        for checkpoint in self.checkpoints:
            checkpoint.run()
        try:
            self.disk.remove([f"{self.directory}/{REPLACES_FILE}"])
        except OSError as error:
            raise self.log_dir.failed(error, f"move of {self.doomed.topic_partition}") from error


class LogMoves:
    """The steps of a move that run on the event loop. `LogDeletion.plan_of_future` cancels a move."""

    def __init__(
        self,
        logs: HostedLogs,
        directories: LogDirectories,
        deletion: LogDeletion,
        checkpoints: LogCheckpoints,
        opener: LogOpener,
        disk: Disk,
        rng: random.Random,
    ) -> None:
        self._logs = logs
        self._directories = directories
        self._deletion = deletion
        self._checkpoints = checkpoints
        self._opener = opener
        self._disk = disk
        self._rng = rng

    def plan(self, topic_partition: TopicPartition, path: str, *, now_ms: int) -> FutureCreationJob | None:
        """Plans a future log in the log directory `path`, for a partition with a log and no future log. Returns None if
        the log is there already.

        Raises the exception of LOG_DIR_NOT_FOUND, LogDirFailure, or KafkaStorageError."""
        current = self._logs.current[topic_partition]
        assert topic_partition not in self._logs.futures, topic_partition
        directory = self._directories.at(path)
        current.log_dir.check_online()
        directory.log_dir.check_online()
        if directory.log_dir is current.log_dir:
            return None
        if self._disk.exists(f"{path}/{topic_partition}"):
            raise ErrorCode.KAFKA_STORAGE_ERROR.exception(f"{path} already has a directory {topic_partition}")
        name = unique_name(topic_partition, FUTURE_SUFFIX, self._rng)
        if parse_directory_name(current_name(name)) != topic_partition:
            raise ErrorCode.INVALID_REQUEST.exception(
                f"the name of {topic_partition} is too long for a move, which needs a directory {name}"
            )
        assert current.topic_id is not None, topic_partition
        return FutureCreationJob(
            disk=self._disk,
            log_dir=directory.log_dir,
            new=NewLog(topic_partition=topic_partition, topic_id=current.topic_id, config=current.config),
            directory=f"{path}/{name}",
            replaces=self._directories.of(current.log_dir).directory_id,
            opener=self._opener,
            now_ms=now_ms,
        )

    def complete(self, log: PartitionLog) -> None:
        """Adds the future log that `FutureCreationJob.run` returned."""
        self._logs.futures[log.topic_partition] = log

    def swap(self, topic_partition: TopicPartition, *, now_ms: int) -> SwapJob:
        """Puts the future log, which has all records of the current log, in the current log's place immediately.

        Raises LogDirFailure or DiskFull. Then nothing has changed."""
        current, future = self._logs.current[topic_partition], self._logs.futures[topic_partition]
        assert future.log_end_offset == current.log_end_offset, (future.log_end_offset, current.log_end_offset)
        directory = f"{future.log_dir.path}/{topic_partition}"
        try:
            future.producers.take_over(current.producers, end_offset=future.log_end_offset)
            self._disk.replace(future.directory, directory)
        except OSError as error:
            raise future.log_dir.failed(error, f"move of {topic_partition}") from error
        future.relocate(directory)
        future.config = current.config
        if current.epochs.latest_epoch > future.epochs.latest_epoch:
            # All records of this epoch are gone.
            future.epochs.assign(current.epochs.latest_epoch, future.log_end_offset)
        self._logs.current[topic_partition] = self._logs.futures.pop(topic_partition)
        self._logs.replaced.add((current.log_dir, topic_partition))
        before, after = self._directories.of(current.log_dir), self._directories.of(future.log_dir)
        after.high_watermarks[topic_partition] = before.high_watermarks.pop(topic_partition, 0)
        return SwapJob(
            disk=self._disk,
            log_dir=future.log_dir,
            directory=directory,
            old_log_dir=current.log_dir,
            doomed=self._deletion.doom(current, now_ms),
            checkpoints=(self._checkpoints.plan_of(future.log_dir), self._checkpoints.plan_of(current.log_dir)),
        )

    def complete_swap(self, job: SwapJob) -> PendingDeletion:
        """Ends the swap after `job.run()`. Returns the old directory, which must still be removed."""
        self._logs.replaced.discard((job.old_log_dir, job.doomed.topic_partition))
        return PendingDeletion(log_dir=job.old_log_dir, paths=(job.doomed.renamed,), due_ms=job.doomed.due_ms)
