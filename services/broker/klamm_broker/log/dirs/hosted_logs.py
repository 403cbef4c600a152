"""The logs that a broker hosts, by partition, and where each of them stands. Event loop only.

| kind | a partition's log |
|---|---|
| current | that is in service, also one whose dir went offline (its calls then raise LogDirFailure) |
| future | that is being copied to another log dir, beside the current one (`log_move.py`) |
| leaving | that was deleted, but whose directory can have its name still: until its deletion job has run |
"""

from __future__ import annotations

from klamm.model import TopicPartition
from klamm.ordered_set import OrderedSet
from klamm_broker.log.files.storage_failure import LogDir
from klamm_broker.log.partition.partition_log import PartitionLog


class HostedLogs:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.current: dict[TopicPartition, PartitionLog] = {}
        self.futures: dict[TopicPartition, PartitionLog] = {}
        self.leaving: dict[TopicPartition, PartitionLog] = {}
        self.replaced: OrderedSet[tuple[LogDir, TopicPartition]] = OrderedSet()
        """Moved from that dir, where the directory has its name still for a moment."""

    def all(self) -> list[PartitionLog]:
        """The current ones, and those that are being copied."""
        return [*self.current.values(), *self.futures.values()]

    def of(self, topic_partition: TopicPartition) -> list[PartitionLog]:
        """The current one and the future one, as far as they are there."""
        found = (self.current.get(topic_partition), self.futures.get(topic_partition))
        return [log for log in found if log is not None]

    def online(self) -> list[PartitionLog]:
        """The current ones whose dir works."""
        return [log for log in self.current.values() if log.log_dir.failure is None]

    def in_dir(self, log_dir: LogDir) -> list[PartitionLog]:
        """Current and future ones."""
        return [log for log in self.all() if log.log_dir is log_dir]
