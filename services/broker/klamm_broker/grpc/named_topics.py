"""Reads the partitions by topic in a request."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from klamm.wire.v1.common_pb2 import TopicPartitions


def named_topics(topics: Iterable[TopicPartitions]) -> dict[str, Collection[int]]:
    """Returns the partition numbers by topic. If a topic is named twice, its last numbers count."""
    return {topic.topic: topic.partitions for topic in topics}
