"""Moving a log to another log dir of its broker (KIP-113): what is on disk at each step, and what a crash leaves.

A *future* log, `<topic>-<partition>.<hex>-future`, is a log of its own in the other dir that copies the current one.
When it has all records, it takes its place:

| step | on disk | a crash after it leaves |
|---|---|---|
| `FutureCreationJob` | the directory, `partition.metadata`, `replaces.metadata` | both: copying goes on at the start |
| `LogManager.swap` | the future log gets its name; it is written to from now on | both: the one replaced goes |
| `SwapJob`, part 1 | that name is durable, the old directory is renamed to `…-delete` | the new log |
| `SwapJob`, part 2 | checkpoints know, `replaces.metadata` goes | the new log |

`replaces.metadata` has the directory.id of the dir moved from: so the start knows which of two is out of date. A
future log without a current one, though all log dirs are readable, is removed: its topic is gone.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from klamm_broker.log.disk import Disk
from klamm_broker.log.log_checkpoint import CheckpointJob
from klamm_broker.log.log_creation import NewLog
from klamm_broker.log.log_deletion import DoomedLog
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.log.partition_metadata import decode_uuid, encode_uuid, write_topic_id
from klamm_broker.log.storage_failure import LogDir

FUTURE_SUFFIX = "-future"
REPLACES_FILE = "replaces.metadata"


def write_replaced(disk: Disk, directory: str, directory_id: uuid.UUID) -> None:
    """Stores, durably, which log dir's log this one is to replace. Raises OSError."""
    disk.write_atomically(
        f"{directory}/{REPLACES_FILE}", f"version: 0\ndirectory_id: {encode_uuid(directory_id)}\n".encode()
    )


def read_replaced(disk: Disk, directory: str) -> uuid.UUID | None:
    """None when there is no such file, or one that cannot be understood. Raises OSError."""
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
    """Makes a future log, empty and durable. Disk thread; then `LogManager.complete_move`."""

    disk: Disk
    log_dir: LogDir
    new: NewLog
    directory: str
    replaces: uuid.UUID
    """The directory.id of the log dir that the current log is in."""
    open_log: Callable[[NewLog, str], PartitionLog]

    def run(self) -> PartitionLog:
        """Raises LogDirFailure, which also takes the dir offline, or DiskFull."""
        self.log_dir.check_online()
        try:
            self.disk.make_directory(self.directory)
            write_topic_id(self.disk, self.directory, self.new.topic_id)
            write_replaced(self.disk, self.directory, self.replaces)
            log = self.open_log(self.new, self.directory)
            self.disk.fsync_directory(self.log_dir.path)
        except OSError as error:
            # Or the next start would go on with a move that was refused.
            with contextlib.suppress(OSError):
                self.disk.remove_tree(self.directory)
            raise self.log_dir.failed(error, f"creation of {self.directory}") from error
        return log


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapJob:
    """Makes the swap durable, and takes the log that was replaced out of the way. Disk thread; then
    `LogManager.complete_swap`."""

    disk: Disk
    log_dir: LogDir
    """Where the log is now."""
    directory: str
    old_log_dir: LogDir
    doomed: DoomedLog
    """The log that was replaced."""
    checkpoints: tuple[CheckpointJob, ...]

    def run(self) -> None:
        """Raises LogDirFailure, which also takes one of the dirs offline, or DiskFull: the next start does the rest."""
        try:
            self.disk.fsync_directory(self.log_dir.path)
        except OSError as error:
            raise self.log_dir.failed(error, f"move of {self.doomed.topic_partition}") from error
        try:
            self.disk.replace(self.doomed.directory, self.doomed.renamed)
            self.disk.fsync_directory(self.old_log_dir.path)
        except OSError as error:
            raise self.old_log_dir.failed(error, f"move of {self.doomed.topic_partition}") from error
        for checkpoint in self.checkpoints:
            checkpoint.run()
        try:
            self.disk.remove([f"{self.directory}/{REPLACES_FILE}"])
        except OSError as error:
            raise self.log_dir.failed(error, f"move of {self.doomed.topic_partition}") from error
