"""Taking the directories of deleted logs out of the way, many at once, beside the event loop.

1. `LogManager.plan_deletion`, on the event loop: the logs are out of service from then on.
2. `DeletionJob.run`, on a disk thread: renames every directory to `<topic>-<partition>.<hex>-delete`, durably, then
   stores checkpoints without those logs: a new log of the same name must not be taken, after a crash, to be as durable
   as the old one was.
3. `LogManager.complete_deletion`, on the event loop: the names are free again.

The renamed directories are removed when `file.delete.delay.ms` is over (`LogManager.remove_files`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from klamm.model import TopicPartition
from klamm_broker.log.disk import Disk
from klamm_broker.log.log_checkpoint import CheckpointJob
from klamm_broker.log.storage_failure import LogDir


class DoomedLog(NamedTuple):
    """A log on its way out."""

    topic_partition: TopicPartition
    directory: str
    renamed: str
    """What the directory is renamed to."""
    due_ms: int
    """When it may be removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionJob:
    """Deleted logs of one log dir."""

    disk: Disk
    log_dir: LogDir
    logs: tuple[DoomedLog, ...]
    checkpoint: CheckpointJob

    def run(self) -> None:
        """Raises LogDirFailure or DiskFull; the next start finds directories that were not renamed to be strays."""
        try:
            for doomed in self.logs:
                self.disk.replace(doomed.directory, doomed.renamed)
            self.disk.fsync_directory(self.log_dir.path)
        except OSError as error:
            raise self.log_dir.failed(error, f"deletion of {len(self.logs)} logs") from error
        self.checkpoint.run()
