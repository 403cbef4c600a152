"""Selects the replicas that an operator's request asks for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from klamm.model import TopicPartition


def topic_filter(topics: Mapping[str, Collection[int]]) -> Callable[[TopicPartition], bool]:
    """Returns a function that is True for requested partitions. No topics select all replicas, and a topic without
    partition numbers selects all its partitions."""
    if not topics:
        return lambda _: True
    wanted = {topic: frozenset(partitions) for topic, partitions in topics.items()}

    def is_requested(topic_partition: TopicPartition) -> bool:
        partitions = wanted.get(topic_partition.topic)
        return partitions is not None and (not partitions or topic_partition.partition in partitions)

    return is_requested
