"""Which replicas an operator's request is about."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from klamm.model import TopicPartition
from klamm.wire.v1.common_pb2 import TopicPartitions


def topic_filter(topics: Collection[TopicPartitions]) -> Callable[[TopicPartition], bool]:
    """All replicas, or those of the topics asked for (a topic without partitions: all of it)."""
    if not topics:
        return lambda _: True
    wanted: Mapping[str, frozenset[int]] = {one.topic: frozenset(one.partitions) for one in topics}

    def is_wanted(topic_partition: TopicPartition) -> bool:
        partitions = wanted.get(topic_partition.topic)
        return partitions is not None and (not partitions or topic_partition.partition in partitions)

    return is_wanted
