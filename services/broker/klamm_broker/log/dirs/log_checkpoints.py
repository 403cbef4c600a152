"""Collects the contents of the checkpoints of the log directories (`log_checkpoint.py` writes them). Event loop
only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from klamm.model import TopicPartition
from klamm_broker.log.dirs.hosted_logs import HostedLogs
from klamm_broker.log.dirs.log_directories import LogDirectories, LogDirectory
from klamm_broker.log.files.log_checkpoint import CheckpointJob, HighWatermarkJob
from klamm_broker.log.files.storage_failure import LogDir
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_server.runtime.disk import Disk


class LogCheckpoints:
    """Plans checkpoint jobs for disk threads. Of two jobs of one directory, the job that was planned later wins, in
    whatever order they run."""

    def __init__(self, logs: HostedLogs, directories: LogDirectories, disk: Disk) -> None:
        self._logs = logs
        self._directories = directories
        self._disk = disk

    def plan(self, high_watermarks: Mapping[TopicPartition, int]) -> list[CheckpointJob]:
        """Returns one job per online directory. Called every `log.flush.offset.checkpoint.interval.ms`.

        A log without an entry in `high_watermarks` keeps the value of the last checkpoint."""
        self.note_high_watermarks(high_watermarks)
        return [self._plan(directory) for directory in self._directories.online()]

    def plan_of(self, log_dir: LogDir) -> CheckpointJob:
        """Returns the checkpoint job of one directory."""
        return self._plan(self._directories.of(log_dir))

    def _plan(self, directory: LogDirectory) -> CheckpointJob:
        logs = self._logs.in_dir(directory.log_dir)
        return CheckpointJob(
            disk=self._disk,
            log_dir=directory.log_dir,
            recovery_points={log.topic_partition: log.flusher.recovery_point for log in logs},
            # A log that starts at the beginning of a segment needs no row, because the file name has the offset.
            log_start_offsets={
                log.topic_partition: log.log_start_offset
                for log in logs
                if log.log_start_offset > log.segments.base_offsets[0]
            },
            high_watermarks=dict(directory.high_watermarks),
            cleaner_offsets={
                log.topic_partition: log.compaction.cleaned_to_offset
                for log in logs
                if log.compaction.cleaned_to_offset
            },
            order=directory.checkpoint_order,
            number=directory.checkpoint_order.next(),
        )

    def store_recovery_points(self, truncated: Iterable[TopicPartition]) -> None:
        """Stores the recovery points of truncated logs, before the next append to them. Blocks.

        Otherwise, after a crash, the recovery would trust new records at the truncated offsets without reading them."""
        logs = [log for name in truncated for log in self._logs.of(name)]
        for log_dir in dict.fromkeys(log.log_dir for log in logs):
            self.plan_of(log_dir).run()

    # High watermarks

    def plan_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> list[HighWatermarkJob]:
        """Returns one job per online directory in which a high watermark has moved. Called every
        `replica.high.watermark.checkpoint.interval.ms`."""
        before = {directory: directory.high_watermarks for directory in self._directories.online()}
        self.note_high_watermarks(high_watermarks)
        return [
            HighWatermarkJob(
                disk=self._disk,
                log_dir=directory.log_dir,
                high_watermarks=dict(directory.high_watermarks),
                order=directory.checkpoint_order,
                number=directory.checkpoint_order.next(),
            )
            for directory in self._directories.online()
            if directory.high_watermarks != before.get(directory)
        ]

    def note_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Sets the high watermarks for the next checkpoints. A log without an entry in `high_watermarks` keeps its
        value."""
        for directory in self._directories.online():
            logs = (log.topic_partition for log in self._logs.in_dir(directory.log_dir))
            known = {**directory.high_watermarks, **high_watermarks}
            directory.high_watermarks = {name: known[name] for name in logs if name in known}

    def high_watermark(self, log: PartitionLog) -> int:
        """Returns the last checkpointed high watermark, limited to the log's offsets. A replica starts with it."""
        mark = self._directories.of(log.log_dir).high_watermarks.get(log.topic_partition, 0)
        return min(max(mark, log.log_start_offset), log.log_end_offset)
