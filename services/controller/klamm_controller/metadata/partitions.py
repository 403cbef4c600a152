"""The records that create partitions, and the request that adds partitions to a topic (Kafka's createPartitions).

A new partition's leader is its first active replica, and all its active replicas are in sync.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence

from klamm.errors import ErrorCode
from klamm.model import INTERNAL_TOPICS
from klamm.wire.v1.controller_pb2 import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    NamedResult,
    NewPartitions,
)
from klamm.wire.v1.metadata_pb2 import MetadataRecord
from klamm_controller.metadata.assignments import chosen_replicas
from klamm_controller.metadata.decision import Decision, Refusal
from klamm_controller.metadata.electorate import active_brokers
from klamm_controller.metadata.placement import place_replicas
from klamm_controller.metadata.policy import TopicPolicy, check_budget
from klamm_server.metadata.entities import NO_LEADER, TopicImage
from klamm_server.metadata.image import MetadataImage


def handle_create_partitions(
    request: CreatePartitionsRequest, image: MetadataImage, policy: TopicPolicy, rng: random.Random
) -> Decision[CreatePartitionsResponse]:
    """Adds partitions to topics. Each topic succeeds or fails by itself. With `validate_only`, makes no records and
    returns the same results."""
    asked = Counter(topic.topic for topic in request.topics)
    budget = policy.partitions_per_request_max
    records: list[MetadataRecord] = []
    results = []
    for wanted in request.topics:
        try:
            if asked[wanted.topic] > 1:
                raise Refusal(ErrorCode.INVALID_REQUEST, f"topic {wanted.topic} is named {asked[wanted.topic]} times")
            topic = _growable(wanted, image)
            check_budget(topic.name, wanted.total_count - len(topic.partitions), budget, policy)
            replicas = _new_replicas(wanted, topic, image, rng)
        except Refusal as refusal:
            results.append(NamedResult(name=wanted.topic, error_code=refusal.code, error_message=refusal.message))
            continue
        budget -= len(replicas)
        records += partition_records(topic.topic_id, replicas, image, first_partition=len(topic.partitions))
        results.append(NamedResult(name=wanted.topic))
    return Decision(
        records=() if request.validate_only else tuple(records), reply=CreatePartitionsResponse(results=results)
    )


def partition_records(
    topic_id: uuid.UUID, replicas: Sequence[tuple[int, ...]], image: MetadataImage, *, first_partition: int = 0
) -> Iterator[MetadataRecord]:
    """Yields the records that create the partitions from `first_partition` on, with these replicas."""
    active = active_brokers(image)
    for number, chosen in enumerate(replicas, first_partition):
        isr = [replica for replica in chosen if replica in active]
        record = MetadataRecord()
        partition = record.partition
        partition.topic_id = topic_id.bytes
        partition.partition = number
        partition.replicas.extend(chosen)
        partition.isr.extend(isr)
        partition.leader = isr[0] if isr else NO_LEADER
        yield record


def _growable(wanted: NewPartitions, image: MetadataImage) -> TopicImage:
    topic = image.topic(wanted.topic)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {wanted.topic!r} does not exist")
    if topic.name in INTERNAL_TOPICS:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"the partition count of the internal topic {topic.name} cannot change, because groups would change"
            " coordinators",
        )
    if wanted.total_count <= len(topic.partitions):
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name} has {len(topic.partitions)} partitions and cannot change to {wanted.total_count},"
            " expected more",
        )
    return topic


def _new_replicas(
    wanted: NewPartitions, topic: TopicImage, image: MetadataImage, rng: random.Random
) -> list[tuple[int, ...]]:
    count = len(topic.partitions)
    first = topic.partitions[0]
    replication_factor = len(first.replicas) - len(first.adding_replicas)
    added = wanted.total_count - count
    if not wanted.assignments:
        return place_replicas(image.brokers, added, replication_factor, rng)
    chosen = chosen_replicas(
        topic.name,
        wanted.assignments,
        image,
        first_partition=count,
        replication_factor=replication_factor,
    )
    if len(chosen) != added:
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"topic {topic.name}: {len(chosen)} partitions have assigned replicas, but {added} are added",
        )
    return chosen
