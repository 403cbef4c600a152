"""What the log dirs hold, and how much room they have (DescribeLogDirs)."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from typing import NamedTuple

from klamm.errors import ErrorCode
from klamm_broker.log.dirs.hosted_logs import HostedLogs
from klamm_broker.log.dirs.log_directories import LogDirectory
from klamm_broker.log.files.disk import Disk
from klamm_broker.log.partition.partition_log import PartitionLog

logger = logging.getLogger(__name__)


class ReplicaOnDisk(NamedTuple):
    """One log of a dir that is online."""

    log: PartitionLog
    is_future: bool
    offset_lag: int
    """How far a future log is behind the current one; 0 for a current log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """One row of DescribeLogDirs."""

    path: str
    directory_id: uuid.UUID | None
    """The dir's id, or None if the dir could not be opened."""
    error_code: ErrorCode
    total_bytes: int
    """-1 if unknown, as `usable_bytes`."""
    usable_bytes: int
    replicas: tuple[ReplicaOnDisk, ...]


def describe_log_dir(directory: LogDirectory, logs: HostedLogs, disk: Disk) -> LogDirDescription:
    """Takes the dir offline if it cannot say how much room it has."""
    log_dir = directory.log_dir
    total = usable = -1
    if log_dir.failure is None:
        try:
            total, usable = disk.space(log_dir.path)
        except OSError as error:
            logger.error("%s", log_dir.failed(error, "describe"))
    offline = log_dir.failure is not None
    return LogDirDescription(
        path=log_dir.path,
        directory_id=directory.properties.directory_id if directory.properties else None,
        error_code=ErrorCode.KAFKA_STORAGE_ERROR if offline else ErrorCode.NONE,
        total_bytes=total,
        usable_bytes=usable,
        replicas=() if offline else tuple(_on_disk(log, logs) for log in logs.in_dir(log_dir)),
    )


def _on_disk(log: PartitionLog, logs: HostedLogs) -> ReplicaOnDisk:
    if logs.futures.get(log.topic_partition) is not log:
        return ReplicaOnDisk(log, is_future=False, offset_lag=0)
    behind = logs.current[log.topic_partition].log_end_offset - log.log_end_offset
    return ReplicaOnDisk(log, is_future=True, offset_lag=max(0, behind))
