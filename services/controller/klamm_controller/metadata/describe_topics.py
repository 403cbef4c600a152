"""Topics as the image has them."""

from __future__ import annotations

from collections.abc import Iterator

from klamm.errors import ErrorCode
from klamm.model import INTERNAL_TOPICS
from klamm.wire.v1.controller_pb2 import (
    DescribedPartition,
    DescribedTopic,
    DescribeTopicsRequest,
)
from klamm_controller.metadata.electorate import Electorate
from klamm_server.metadata.image import MetadataImage, PartitionImage


def describe_topics(request: DescribeTopicsRequest, image: MetadataImage) -> Iterator[DescribedTopic]:
    """The topics asked for, in that order, or all of them by name; lazily, because all may be many."""
    names = request.topics or sorted(image.topics_by_name)
    electorate = Electorate(image)
    return (_describe(name, image, electorate) for name in names)


def _describe(name: str, image: MetadataImage, electorate: Electorate) -> DescribedTopic:
    topic = image.topic(name)
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
                elr=partition.elr,
                last_known_elr=partition.last_known_elr,
                adding_replicas=partition.adding_replicas,
                removing_replicas=partition.removing_replicas,
                offline_replicas=[each for each in partition.replicas if _is_offline(each, partition, image)],
                resigned_replicas=partition.resigned_replicas,
                min_isr=electorate.min_isr(name, len(partition.replicas)),
            )
            for partition in topic.partitions
        ],
    )


def _is_offline(broker_id: int, partition: PartitionImage, image: MetadataImage) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is None or broker.fenced or broker_id in partition.offline_replicas
