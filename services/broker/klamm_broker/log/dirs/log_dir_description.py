"""Describes the contents and the space of log directories (DescribeLogDirs)."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from typing import NamedTuple

from klamm.errors import ErrorCode
from klamm_broker.log.dirs.hosted_logs import HostedLogs
from klamm_broker.log.dirs.log_directories import LogDirectory
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_server.runtime.disk import Disk

logger = logging.getLogger(__name__)


class ReplicaOnDisk(NamedTuple):
    """A log in a log directory that is online."""

    log: PartitionLog
    is_future: bool
    offset_lag: int
    """How many records a future log is behind the current log. 0 for a current log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """The description of one log directory for DescribeLogDirs."""

    path: str
    directory_id: uuid.UUID | None
    """The id of the directory, or None if the directory could not be opened."""
    error_code: ErrorCode
    total_bytes: int
    """The size of the file system in bytes. -1 if unknown, as for `usable_bytes`."""
    usable_bytes: int
    replicas: tuple[ReplicaOnDisk, ...]


def describe_log_dir(directory: LogDirectory, logs: HostedLogs, disk: Disk) -> LogDirDescription:
    """Describes a log directory. Takes it offline if reading its space fails."""
    log_dir = directory.log_dir
    total = usable = -1
    if log_dir.failure is None:
        try:
            total, usable = disk.space(log_dir.path)
        except OSError as error:
            logger.error("a log directory failed: %s", log_dir.failed(error, "describe"))
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
