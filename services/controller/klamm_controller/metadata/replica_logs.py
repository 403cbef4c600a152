"""The brokers' reports of where the logs of partitions without a leader end. They are kept only in memory.

A log does not grow while its partition has no leader, and a broker that may have lost records registers again. So a
report is valid for one leader epoch of the partition and one registration of the broker. Brokers repeat their reports,
so a new active controller needs nothing from the previous one.
"""

from __future__ import annotations

from typing import NamedTuple

from klamm_controller.metadata.electorate import Electorate
from klamm_server.metadata.entities import NO_LEADER, PartitionImage
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.partition_index import PartitionKey

PRUNE_FROM = 1_000
"""Obsolete reports are dropped only above this number of partitions."""


class ReplicaLog(NamedTuple):
    """A report of the log of one replica whose partition has no leader."""

    broker_epoch: int
    """The broker epoch of the registration under which the broker reported."""
    leader_epoch: int
    """The partition's leader epoch at the time of the report. The partition has no leader in it."""
    last_epoch: int
    """The leader epoch of the log's last record; -1 if the log is empty."""
    log_end_offset: int


class ReplicaLogs:
    """The last report of each replica, for at most twice as many partitions as have no leader (`prune`)."""

    def __init__(self) -> None:
        self._logs: dict[PartitionKey, dict[int, ReplicaLog]] = {}
        self._prune_at = PRUNE_FROM

    def __len__(self) -> int:
        return len(self._logs)

    def note(self, key: PartitionKey, broker_id: int, log: ReplicaLog) -> None:
        """Keeps a report of the replica on `broker_id`, in place of its last one."""
        self._logs.setdefault(key, {})[broker_id] = log

    def current(self, key: PartitionKey, partition: PartitionImage, image: MetadataImage) -> dict[int, ReplicaLog]:
        """Returns the reports of the partition's replicas that are still valid, by broker id."""
        if partition.leader != NO_LEADER:
            return {}
        reported = self._logs.get(key, {})
        return {
            broker_id: log
            for broker_id in partition.replicas
            if (log := reported.get(broker_id)) is not None
            and log.leader_epoch == partition.leader_epoch
            and (broker := image.brokers.get(broker_id)) is not None
            and log.broker_epoch == broker.broker_epoch
        }

    def prune(self, image: MetadataImage) -> None:
        """Forgets the partitions that have a leader or were deleted, when their number may have doubled since the last
        time. So not every request looks at every partition."""
        if len(self._logs) < self._prune_at:
            return
        for topic_id, number in list(self._logs):
            topic = image.topics_by_id.get(topic_id)
            if topic is None or topic.partitions[number].leader != NO_LEADER:
                del self._logs[topic_id, number]
        self._prune_at = max(PRUNE_FROM, 2 * len(self._logs))


def most_complete(partition: PartitionImage, electorate: Electorate, logs: dict[int, ReplicaLog]) -> int:
    """Returns the broker whose log has every committed record that any of `logs` has, or -1 if there are no logs.

    Two logs whose last records have the same leader epoch differ in length only. A log with a later epoch has every
    record that was committed before that epoch began. Among equal logs, a replica that can lead and has not resigned
    goes first, then the order of the replicas decides."""
    if not logs:
        return NO_LEADER
    live = electorate.live_replicas(partition)

    def completeness(broker_id: int) -> tuple[int, int, bool, bool, int]:
        log = logs[broker_id]
        has_resigned = broker_id in partition.resigned_replicas
        place = partition.replicas.index(broker_id)
        return log.last_epoch, log.log_end_offset, broker_id in live, not has_resigned, -place

    return max(logs, key=completeness)
