"""Describes topics as they are in the image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from klamm.errors import ErrorCode
from klamm.model import INTERNAL_TOPICS
from klamm.wire.v1.controller_pb2 import (
    DescribedPartition,
    DescribedTopic,
    DescribeTopicsRequest,
)
from klamm_controller.metadata.electorate import Electorate
from klamm_server.metadata.entities import PartitionImage
from klamm_server.metadata.image import MetadataImage


def describe_topics(
    request: DescribeTopicsRequest, image: MetadataImage, may_see: Callable[[str], bool] = lambda _: True
) -> Iterator[DescribedTopic]:
    """Yields the descriptions of the requested topics, in the order of the request. If the request names none, yields
    all topics that the caller may see, ordered by name. They are made lazily, because they may be many."""
    names: Iterable[str] = request.topics or filter(may_see, sorted(image.topics_by_name))
    electorate = Electorate(image)
    return (_describe(name, image, electorate) if may_see(name) else _denied(name) for name in names)


def _denied(name: str) -> DescribedTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DescribedTopic(name=name, error_code=code, error_message=code.text)


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
            _describe_partition(partition, image, electorate.min_isr(name, len(partition.replicas)))
            for partition in topic.partitions
        ],
    )


def _describe_partition(partition: PartitionImage, image: MetadataImage, min_isr: int) -> DescribedPartition:
    unusual: dict[str, Sequence[int]] = {
        "elr": partition.elr,
        "last_known_elr": partition.last_known_elr,
        "adding_replicas": partition.adding_replicas,
        "removing_replicas": partition.removing_replicas,
        "offline_replicas": [replica for replica in partition.replicas if _is_offline(replica, partition, image)],
        "resigned_replicas": partition.resigned_replicas,
    }
    return DescribedPartition(
        partition=partition.partition,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        replicas=partition.replicas,
        isr=partition.isr,
        min_isr=min_isr,
        # Most partitions have none of these fields. Six empty sequences would double the cost of encoding a partition.
        **{name: replicas for name, replicas in unusual.items() if replicas},
    )


def _is_offline(broker_id: int, partition: PartitionImage, image: MetadataImage) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is None or broker.fenced or broker_id in partition.offline_replicas
