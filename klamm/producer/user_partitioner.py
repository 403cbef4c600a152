"""Calls the partitioner that a user wrote, and checks what it returns.

The producer's lock is not held during the call, so that a slow partitioner delays only its own sender."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from klamm.cluster.metadata import NO_LEADER, ClusterView
from klamm.errors import PartitionerError
from klamm.partitioner import Partitioner, PartitionFunction, PartitionInfo
from klamm.producer.user_calls import UserCalls


class UserPartitioner:
    """The user's partitioner of one producer."""

    def __init__(self, partitioner: Partitioner | PartitionFunction, calls: UserCalls) -> None:
        self._partitioner = partitioner
        self._partition = partitioner.partition if isinstance(partitioner, Partitioner) else partitioner
        self._calls = calls

    def choose(self, topic: str, key: Any, value: Any, partitions: Sequence[PartitionInfo]) -> int | None:
        """Returns the number of the chosen partition, or None if the default partitioner has to choose it. Raises
        PartitionerError."""
        try:
            chosen = self._partition(topic, key, value, partitions)
        except Exception as error:
            raise PartitionerError(f"the partitioner failed for a record of topic {topic!r}: {error!r}") from error
        if chosen is None:
            return None
        if not isinstance(chosen, int) or isinstance(chosen, bool) or not 0 <= chosen < len(partitions):
            raise PartitionerError(
                f"the partitioner returned {chosen!r} for a record of topic {topic!r}, expected None or a partition"
                f" from 0 to {len(partitions) - 1}"
            )
        return chosen

    def close(self) -> None:
        """Closes a Partitioner. An exception is logged, or raised by the producer's `close` if it ends the program."""
        if isinstance(self._partitioner, Partitioner):
            self._calls.call(f"partitioner={self._partitioner!r} close", self._partitioner.close)


def partition_infos(view: ClusterView, topic: str) -> tuple[PartitionInfo, ...]:
    """Returns what a partitioner sees of the topic's partitions."""
    return tuple(
        PartitionInfo(
            partition=partition.partition,
            leader=None if partition.leader == NO_LEADER else partition.leader,
            leader_rack=view.brokers[partition.leader].rack or None if partition.leader in view.brokers else None,
            is_available=partition.leader in view.brokers,
        )
        for partition in view.partitions_of(topic)
    )
