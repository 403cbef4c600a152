"""Decodes the topics that the controller describes."""

from __future__ import annotations

import uuid

from klamm.admin.types.topics import CreatedTopic, PartitionDescription, TopicDescription
from klamm.cluster.metadata import PartitionView, TopicView
from klamm.wire.v1 import controller_pb2


def created_topic(message: controller_pb2.CreatedTopic) -> CreatedTopic:
    return CreatedTopic(
        name=message.name,
        topic_id=_uuid(message.topic_id),
        partition_count=message.partition_count,
        replication_factor=message.replication_factor,
    )


def topic_description(message: controller_pb2.DescribedTopic) -> TopicDescription:
    return TopicDescription(
        name=message.name,
        topic_id=_uuid(message.topic_id),
        internal=message.internal,
        partitions=tuple(
            PartitionDescription(
                partition=partition.partition,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                replicas=tuple(partition.replicas),
                isr=tuple(partition.isr),
                elr=tuple(partition.elr),
                last_known_elr=tuple(partition.last_known_elr),
                adding_replicas=tuple(partition.adding_replicas),
                removing_replicas=tuple(partition.removing_replicas),
                offline_replicas=tuple(partition.offline_replicas),
                resigned_replicas=tuple(partition.resigned_replicas),
                min_isr=partition.min_isr,
            )
            for partition in message.partitions
        ),
    )


def topic_view(topic: TopicDescription) -> TopicView:
    """Returns the part of a topic's description that the client keeps in its metadata."""
    return TopicView(
        name=topic.name,
        topic_id=topic.topic_id,
        internal=topic.internal,
        partitions=tuple(
            PartitionView(
                partition=partition.partition,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                replicas=partition.replicas,
                isr=partition.isr,
                offline_replicas=partition.offline_replicas,
            )
            for partition in topic.partitions
        ),
    )


def _uuid(data: bytes) -> uuid.UUID:
    """Returns the id as a UUID. With validate_only, no topic is created, so its id is empty."""
    return uuid.UUID(bytes=data) if data else uuid.UUID(int=0)
