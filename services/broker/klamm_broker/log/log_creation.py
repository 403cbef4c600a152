"""Making the logs of new partitions, many at once, in three steps so that the slow one runs beside the event loop.

1. `LogManager.plan_creation`, on the event loop: chooses a log dir for each.
2. `CreationJob.run`, on a disk thread: directories and files, durable.
3. `LogManager.complete_creation`, on the event loop: from then on the logs are found.

A new log waits for the disk twice (its `partition.metadata`, its directory); several threads wait at once, because a
file system commits what is waiting together. Kafka spares the wait: it writes `partition.metadata` behind, and before
the first append at the latest (`PartitionMetadataFile.maybeFlush`). Here an append must not wait for the disk.

A crash at any moment leaves of each partition nothing, a directory without records and `partition.metadata`, or one
that says which topic it is of: no record is written before that is durable.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from klamm.errors import BrokerError
from klamm.model import TopicId, TopicPartition
from klamm_broker.log.disk import Disk
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.log.partition_metadata import write_topic_id
from klamm_broker.log.storage_failure import LogDir

THREADS_MAX = 8
"""How many wait for the disk at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLog:
    """A log to be made."""

    topic_partition: TopicPartition
    topic_id: TopicId
    config: LogConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationJob:
    """New logs of one log dir."""

    disk: Disk
    log_dir: LogDir
    logs: tuple[NewLog, ...]
    open_log: Callable[[NewLog, str], PartitionLog]
    """Opens the log in a directory. Any thread; raises OSError."""

    def run(self) -> list[PartitionLog | BrokerError]:
        """For each of `logs` the log or why there is none: a LogDirFailure, which also takes the dir offline, or a
        DiskFull."""
        with ThreadPoolExecutor(min(THREADS_MAX, len(self.logs)), thread_name_prefix="log-creation") as executor:
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
            return self.open_log(new, directory)
        except BrokerError as error:
            return error
        except OSError as error:
            return self.log_dir.failed(error, f"creation of {new.topic_partition}")

    def _undone(self, outcome: PartitionLog | BrokerError, error: OSError) -> BrokerError:
        if isinstance(outcome, PartitionLog):
            outcome.abandon()
        return self.log_dir.failed(error, "creation of logs")
