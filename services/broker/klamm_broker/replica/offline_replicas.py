"""Replicas that should be here and cannot be reached, and why."""

from __future__ import annotations

from klamm.model import TopicPartition


class OfflineReplicas:
    """The reasons by name; `ReplicaManager` adds and removes them."""

    def __init__(self) -> None:
        self._reasons: dict[TopicPartition, str] = {}

    def __len__(self) -> int:
        return len(self._reasons)

    def add(self, topic_partition: TopicPartition, reason: str) -> None:
        """It cannot be reached from now on."""
        self._reasons[topic_partition] = reason

    def remove(self, topic_partition: TopicPartition) -> None:
        """It is here, or should not be any more."""
        self._reasons.pop(topic_partition, None)

    def reason(self, topic_partition: TopicPartition) -> str | None:
        """Why it cannot be reached; None when it can, or should not be here."""
        return self._reasons.get(topic_partition)
