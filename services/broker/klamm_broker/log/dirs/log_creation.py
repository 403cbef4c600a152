"""Creates the logs of new partitions, many at once, in three steps, so that the slow step runs beside the event loop.

1. `LogCreation.plan`, on the event loop: chooses a log directory for each log.
2. `CreationJob.run`, on a disk thread: creates directories and files durably.
3. `LogCreation.complete`, on the event loop: adds the logs to the hosted ones.

A new log waits for the disk twice (its `partition.metadata`, its directory). Several threads wait at the same time,
because a file system commits all waiting writes together. Kafka avoids the wait. It writes `partition.metadata` later,
but before the first append (`PartitionMetadataFile.maybeFlush`). In Klamm, an append must not wait for the disk.

A crash at any moment leaves one of three states of a partition: nothing, a directory without records and without
`partition.metadata`, or a directory with the topic's id. No record is written before the topic's id is durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicId, TopicPartition
from klamm.process import PROCESS
from klamm_broker.log.dirs.hosted_logs import HostedLogs
from klamm_broker.log.dirs.log_directories import LogDirectories
from klamm_broker.log.dirs.log_opener import LogOpener
from klamm_broker.log.files.partition_metadata import write_topic_id
from klamm_broker.log.files.storage_failure import DiskFull, LogDir
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_server.runtime.disk import Disk

THREADS_MAX = 8
"""How many threads wait for the disk at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLog:
    """A log to be created."""

    topic_partition: TopicPartition
    topic_id: TopicId
    config: LogConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationJob:
    """The new logs of one log directory."""

    disk: Disk
    log_dir: LogDir
    logs: tuple[NewLog, ...]
    opener: LogOpener
    now_ms: int

    def run(self) -> list[PartitionLog | BrokerError]:
        """Creates the `logs`. Returns for each one the log or its error: a LogDirFailure, which also takes the
        directory offline, or a DiskFull."""
        with PROCESS.get().make_executor(min(THREADS_MAX, len(self.logs)), "log-creation") as executor:
            outcomes = list(executor.map(self._create, self.logs))
        try:
            self.disk.fsync_directory(self.log_dir.path)
        except OSError as error:
            return [self._undone(outcome, error) for outcome in outcomes]
        return outcomes

    def _create(self, new: NewLog) -> PartitionLog | BrokerError:
        directory = f"{self.log_dir.path}/{new.topic_partition}"
        try:
            self.log_dir.check_online()
            self.disk.make_directory(directory)
            write_topic_id(self.disk, directory, new.topic_id)
            return self.opener.open(
                self.log_dir, directory, new.topic_partition, new.topic_id, new.config, now_ms=self.now_ms
            )
        except BrokerError as error:
            return error
        except OSError as error:
            return self.log_dir.failed(error, f"creation of {new.topic_partition}")

    def _undone(self, outcome: PartitionLog | BrokerError, error: OSError) -> BrokerError:
        if isinstance(outcome, PartitionLog):
            outcome.abandon()
        return self.log_dir.failed(error, "creation of logs")


class LogCreation:
    """The steps of a creation that run on the event loop."""

    def __init__(self, logs: HostedLogs, directories: LogDirectories, opener: LogOpener, disk: Disk) -> None:
        self._logs = logs
        self._directories = directories
        self._opener = opener
        self._disk = disk

    def plan(
        self, wanted: Sequence[NewLog], *, now_ms: int
    ) -> tuple[list[CreationJob], dict[TopicPartition, BrokerError]]:
        """Runs step 1: assigns each new log to the online directory with the fewest logs.

        No partition of `wanted` may have a log. Also returns the errors of the logs that cannot be created."""
        log_dirs = [directory.log_dir for directory in self._directories.online()]
        counts = {log_dir: len(self._logs.in_dir(log_dir)) for log_dir in log_dirs}
        placed: dict[LogDir, list[NewLog]] = {}
        refused: dict[TopicPartition, BrokerError] = {}
        for new in wanted:
            assert new.topic_partition not in self._logs.current, new
            former = self._logs.leaving.get(new.topic_partition)
            if former is not None or not counts:
                refused[new.topic_partition] = _refusal(new, former)
                continue
            free = [count for count in counts if (count, new.topic_partition) not in self._logs.replaced]
            log_dir = min(free or counts, key=counts.__getitem__)
            counts[log_dir] += 1
            placed.setdefault(log_dir, []).append(new)
        return [self._job(log_dir, logs, now_ms) for log_dir, logs in placed.items()], refused

    def _job(self, log_dir: LogDir, logs: Sequence[NewLog], now_ms: int) -> CreationJob:
        return CreationJob(disk=self._disk, log_dir=log_dir, logs=tuple(logs), opener=self._opener, now_ms=now_ms)

    def complete(
        self, job: CreationJob, outcomes: Sequence[PartitionLog | BrokerError]
    ) -> dict[TopicPartition, BrokerError]:
        """Runs step 3, with the result of `job.run()`. Returns the errors of the logs that were not created."""
        failures = {}
        for new, outcome in zip(job.logs, outcomes, strict=True):
            if isinstance(outcome, PartitionLog):
                self._logs.current[new.topic_partition] = outcome
            else:
                failures[new.topic_partition] = outcome
        return failures


def _refusal(new: NewLog, former: PartitionLog | None) -> BrokerError:
    """Returns why the log cannot be created now. DiskFull means that the name becomes free when there is space to
    delete `former`."""
    if former is None:
        return ErrorCode.KAFKA_STORAGE_ERROR.exception("no log directory is online")
    if former.log_dir.failure is None:
        return DiskFull(
            former.log_dir, f"creation of {new.topic_partition}, whose deleted log still occupies the directory name,"
        )
    return ErrorCode.KAFKA_STORAGE_ERROR.exception(f"{former.directory} could not be moved away")
