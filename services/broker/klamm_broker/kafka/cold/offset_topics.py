"""Topics of requests about committed offsets. Older versions name them by name, newer ones by id (KIP-848,
KIP-1319)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from klamm.errors import ErrorCode
from klamm.wire.v1.common_pb2 import PartitionResult
from klamm.wire.v1.coordinator_pb2 import GroupOffset
from klamm_broker.kafka.codec.fields import Fields
from klamm_broker.kafka.topic_ids import TopicIds, id_bytes, unknown_id


class OffsetTopic(NamedTuple):
    """A topic of a request about committed offsets."""

    name: str
    topic_id: uuid.UUID | None
    """The topic's id, or None if the request has the topic's name."""
    asked: Any

    @property
    def is_unknown(self) -> bool:
        """True if no topic has the id."""
        return self.topic_id is not None and unknown_id(self.name) is not None


def offset_topics(topics: Iterable[Any], topic_ids: TopicIds) -> list[OffsetTopic]:
    """Returns the topics of a request, with their names."""
    return [
        OffsetTopic(topic.name, None, topic)
        if hasattr(topic, "name")
        else OffsetTopic(topic_ids.name_of(id_bytes(topic.topic_id)), uuid.UUID(bytes=id_bytes(topic.topic_id)), topic)
        for topic in topics
    ]


def with_ids(topics: Iterable[Mapping[str, Any]], asked: Iterable[OffsetTopic]) -> list[Fields]:
    """Returns the topics of an answer, each with its id if the request named it by id."""
    ids = {topic.name: topic.topic_id for topic in asked if topic.topic_id is not None}
    return [{**topic, "topic_id": ids[topic["name"]]} if topic["name"] in ids else topic for topic in topics]


def committed_offsets(topics: Iterable[OffsetTopic]) -> list[GroupOffset]:
    """Returns the offsets that a request commits, without those of unknown topics."""
    return [
        GroupOffset(
            topic=topic.name,
            partition=partition.partition_index,
            offset=partition.committed_offset,
            leader_epoch=getattr(partition, "committed_leader_epoch", -1),
            metadata=partition.committed_metadata or "",
        )
        for topic in topics
        if not topic.is_unknown
        for partition in topic.asked.partitions
    ]


def failed_commits(offsets: Iterable[GroupOffset], code: ErrorCode) -> list[PartitionResult]:
    """Returns the results of a request that failed as a whole."""
    return [PartitionResult(topic=offset.topic, partition=offset.partition, error_code=code) for offset in offsets]


def unknown_commits(topics: Iterable[OffsetTopic]) -> list[PartitionResult]:
    """Returns the results of the topics that do not exist."""
    return [
        PartitionResult(topic=topic.name, partition=partition.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
        for topic in topics
        if topic.is_unknown
        for partition in topic.asked.partitions
    ]
