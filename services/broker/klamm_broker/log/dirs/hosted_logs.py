"""The logs that a broker hosts, by partition and kind. Event loop only.

| kind | a partition's log |
|---|---|
| current | in service, even if its directory is offline (its calls then raise LogDirFailure) |
| future | being copied to another log directory, beside the current log (`log_move.py`) |
| leaving | deleted, but until its deletion job has run, the directory may still have its name |
"""

from __future__ import annotations

from klamm.model import TopicPartition
from klamm.ordered_set import OrderedSet
from klamm_broker.log.files.storage_failure import LogDir
from klamm_broker.log.partition.partition_log import PartitionLog


class HostedLogs:
    """The logs of a broker: current, future, leaving and replaced ones."""

    def __init__(self) -> None:
        self.current: dict[TopicPartition, PartitionLog] = {}
        self.futures: dict[TopicPartition, PartitionLog] = {}
        self.leaving: dict[TopicPartition, PartitionLog] = {}
        self.replaced: OrderedSet[tuple[LogDir, TopicPartition]] = OrderedSet()
        """Logs that were replaced by a move, where the old directory still has its name."""

    def all(self) -> list[PartitionLog]:
        """Returns the current and the future logs."""
        return [*self.current.values(), *self.futures.values()]

    def of(self, topic_partition: TopicPartition) -> list[PartitionLog]:
        """Returns the current log and the future log of a partition, if they exist."""
        found = (self.current.get(topic_partition), self.futures.get(topic_partition))
        return [log for log in found if log is not None]

    def online(self) -> list[PartitionLog]:
        """Returns the current logs whose directory is online."""
        return [log for log in self.current.values() if log.log_dir.failure is None]

    def in_dir(self, log_dir: LogDir) -> list[PartitionLog]:
        """Returns the current and future logs in a log directory."""
        return [log for log in self.all() if log.log_dir is log_dir]
