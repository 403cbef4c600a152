"""Which replicas an operator's request is about."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from klamm.model import TopicPartition


def topic_filter(topics: Mapping[str, Collection[int]]) -> Callable[[TopicPartition], bool]:
    """All replicas, or those of the topics asked for (a topic without partitions: all of it)."""
    if not topics:
        return lambda _: True
    wanted = {topic: frozenset(partitions) for topic, partitions in topics.items()}

    def is_wanted(topic_partition: TopicPartition) -> bool:
        partitions = wanted.get(topic_partition.topic)
        return partitions is not None and (not partitions or topic_partition.partition in partitions)

    return is_wanted
