"""Replicas of this broker that are unavailable, and the reasons."""

from __future__ import annotations

from klamm.model import TopicPartition


class OfflineReplicas:
    """The reasons by partition. `ReplicaManager` adds and removes them."""

    def __init__(self) -> None:
        self._reasons: dict[TopicPartition, str] = {}

    def __len__(self) -> int:
        return len(self._reasons)

    def add(self, topic_partition: TopicPartition, reason: str) -> None:
        """Marks the replica as unavailable."""
        self._reasons[topic_partition] = reason

    def remove(self, topic_partition: TopicPartition) -> None:
        """Removes the replica, because it is available again or no longer assigned to this broker."""
        self._reasons.pop(topic_partition, None)

    def reason(self, topic_partition: TopicPartition) -> str | None:
        """Returns the reason why the replica is unavailable, or None if it is available or not assigned to this
        broker."""
        return self._reasons.get(topic_partition)
