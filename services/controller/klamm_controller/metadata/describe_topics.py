"""Topics as the image has them."""

from __future__ import annotations

from klamm.errors import ErrorCode
from klamm.model import INTERNAL_TOPICS
from klamm.wire.v1.controller_pb2 import (
    DescribedPartition,
    DescribedTopic,
    DescribeTopicsRequest,
    DescribeTopicsResponse,
)
from klamm_server.metadata.image import MetadataImage, TopicImage


def describe_topics(request: DescribeTopicsRequest, image: MetadataImage) -> DescribeTopicsResponse:
    """The topics asked for, in that order, or all of them by name."""
    names = request.topics or sorted(image.topics_by_name)
    return DescribeTopicsResponse(topics=[_describe(name, image.topic(name)) for name in names])


def _describe(name: str, topic: TopicImage | None) -> DescribedTopic:
    if topic is None:
        return DescribedTopic(
            name=name,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"topic {name!r} does not exist",
        )
    return DescribedTopic(
        name=name,
        topic_id=topic.topic_id.bytes,
        internal=name in INTERNAL_TOPICS,
        partitions=[
            DescribedPartition(
                partition=partition.partition,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                replicas=partition.replicas,
                isr=partition.isr,
            )
            for partition in topic.partitions
        ],
    )
