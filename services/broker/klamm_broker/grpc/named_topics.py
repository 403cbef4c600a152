"""The partitions that a request names by topic."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from klamm.wire.v1.common_pb2 import TopicPartitions


def named_topics(topics: Iterable[TopicPartitions]) -> dict[str, Collection[int]]:
    """The partitions by topic; of a topic that is named twice the last ones."""
    return {one.topic: one.partitions for one in topics}
