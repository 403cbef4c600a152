"""Owns the logs of partitions without a leader, and builds the reports of their end offsets. Pure.

From these reports the controller finds the most complete log (unclean recovery, KIP-966).
"""

from __future__ import annotations

from collections.abc import Iterator

from klamm.wire.v1.controller_pb2 import ReplicaLogEnd, ReportReplicaLogsRequest
from klamm_broker.replica.partition import Partition
from klamm_server.metadata.entities import NO_LEADER

LOGS_PER_REQUEST = 1_000


class LeaderlessLogs:
    """The hosted partitions that have no leader, by the newest metadata that this broker has."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._partitions: dict[tuple[bytes, int], Partition] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    def note(self, partition: Partition, *, is_hosted: bool) -> bool:
        """Checks a partition whose metadata or hosting may have changed. Returns True if it must be reported."""
        key = (partition.topic_id.bytes, partition.topic_partition.partition)
        if not is_hosted or partition.image is None or partition.image.leader != NO_LEADER:
            self._partitions.pop(key, None)
            return False
        self._partitions[key] = partition
        return True

    def requests(self, broker_epoch: int) -> Iterator[ReportReplicaLogsRequest]:
        """Yields reports about all these logs, at most LOGS_PER_REQUEST in each request."""
        ends = [_end(partition) for partition in self._partitions.values()]
        for start in range(0, len(ends), LOGS_PER_REQUEST):
            yield ReportReplicaLogsRequest(
                broker_id=self._broker_id, broker_epoch=broker_epoch, logs=ends[start : start + LOGS_PER_REQUEST]
            )


def _end(partition: Partition) -> ReplicaLogEnd:
    log, image = partition.log, partition.image
    assert image is not None, partition.topic_partition
    return ReplicaLogEnd(
        topic_id=partition.topic_id.bytes,
        partition=partition.topic_partition.partition,
        leader_epoch=image.leader_epoch,
        last_epoch=log.epochs.latest_epoch,
        log_end_offset=log.log_end_offset,
    )
