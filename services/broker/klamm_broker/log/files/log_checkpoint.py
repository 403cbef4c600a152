"""Writes the four checkpoints of a log dir, outside the event loop.

`LogCheckpoints.plan` collects the offsets, on the event loop. `CheckpointJob.run` writes them, on a disk thread.
Truncations and deletions contain such a job, because a crash before the checkpoints are written must not leave
checkpoints that contradict the log.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from klamm.model import TopicPartition
from klamm_broker.log.files.checkpoints import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    write_offsets,
)
from klamm_broker.log.files.storage_failure import LogDir
from klamm_server.runtime.disk import Disk


class CheckpointOrder:
    """Keeps checkpoints of one directory in the order in which they were planned.

    A truncation writes its checkpoint on the event loop. A disk thread may still be writing an earlier one. Without the
    lock and the number, the recovery points from before the truncation could be written last."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.planned = 0
        self.written = 0
        self.high_watermarks_written = 0
        """The number of the job whose high watermarks are on disk. High watermarks are also written without the other
        checkpoints."""
        self.cleaner_offsets: Mapping[TopicPartition, int] = {}
        """The cleaner's offsets on disk. Most checkpoints do not change them."""

    def next(self) -> int:
        self.planned += 1
        return self.planned


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWatermarkJob:
    """The high watermarks of one log directory when the job was planned. They are written more often than the other
    checkpoints."""

    disk: Disk
    log_dir: LogDir
    high_watermarks: Mapping[TopicPartition, int]
    order: CheckpointOrder
    number: int

    def run(self) -> None:
        """Writes the file durably, unless a later job has written it. Raises LogDirFailure or DiskFull."""
        with self.order.lock:
            if self.number < self.order.high_watermarks_written:
                return
            try:
                write_offsets(self.disk, f"{self.log_dir.path}/{HIGH_WATERMARK_FILE}", self.high_watermarks)
            except OSError as error:
                raise self.log_dir.failed(error, "checkpoint of high watermarks") from error
            self.order.high_watermarks_written = self.number


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointJob:
    """The offsets of one log directory when the job was planned."""

    disk: Disk
    log_dir: LogDir
    recovery_points: Mapping[TopicPartition, int]
    log_start_offsets: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int]
    cleaner_offsets: Mapping[TopicPartition, int]
    order: CheckpointOrder
    number: int

    def run(self) -> None:
        """Writes the checkpoint files durably, unless a later job has written them. Raises LogDirFailure or
        DiskFull."""
        with self.order.lock:
            if self.number < self.order.written:
                return
            try:
                write_offsets(self.disk, f"{self.log_dir.path}/{RECOVERY_POINT_FILE}", self.recovery_points)
                write_offsets(self.disk, f"{self.log_dir.path}/{LOG_START_OFFSET_FILE}", self.log_start_offsets)
                if self.number > self.order.high_watermarks_written:
                    write_offsets(self.disk, f"{self.log_dir.path}/{HIGH_WATERMARK_FILE}", self.high_watermarks)
                    self.order.high_watermarks_written = self.number
                if self.cleaner_offsets != self.order.cleaner_offsets:
                    write_offsets(self.disk, f"{self.log_dir.path}/{CLEANER_OFFSET_FILE}", self.cleaner_offsets)
                    self.order.cleaner_offsets = self.cleaner_offsets
            except OSError as error:
                raise self.log_dir.failed(error, "checkpoint") from error
            self.order.written = self.number
