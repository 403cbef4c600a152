"""DescribeTopicPartitions (KIP-966): describes topics with their eligible leader replicas, in pages of partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from klamm.errors import ErrorCode
from klamm.model import INTERNAL_TOPICS, topic_name_problem
from klamm_broker.handlers.metadata import leader_error
from klamm_broker.handlers.topic_rights import is_listed, may_see
from klamm_broker.kafka.api import ApiKey, Versions, api
from klamm_broker.kafka.codec.fields import Fields
from klamm_broker.kafka.cold import authorized_operations
from klamm_broker.kafka.listener_metadata import ListenerMetadata
from klamm_broker.kafka.requests import Request
from klamm_server.metadata.entities import NO_LEADER, PartitionImage, TopicImage
from klamm_server.runtime.sliced_work import ITEMS_PER_TURN

PAGE_PARTITIONS_MAX: Final = 500
"""The most partitions of one answer, because they are described in one turn of the event loop."""


@api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, Versions(0, 0, flexible=0), rights_of="Admin/DescribeTopics")
async def describe_topic_partitions(request: Request, body: Any, cluster: ListenerMetadata) -> Fields:
    """Describes partitions in the order of topic names and partition numbers, from the cursor on. Without named topics,
    describes all topics."""
    image = cluster.image
    first_topic, first_partition = "", 0
    if body.cursor is not None:
        first_topic, first_partition = body.cursor.topic_name, body.cursor.partition_index
    names = {topic.name for topic in body.topics} or set(filter(is_listed, image.topics_by_name))
    live = frozenset(broker.broker_id for broker in cluster.brokers())
    unreachable = cluster.unreachable()
    left = max(1, min(body.response_partition_limit, PAGE_PARTITIONS_MAX))
    topics: list[Fields] = []
    await asyncio.sleep(0)
    wanted_names = sorted(name for name in names if name >= first_topic)
    await asyncio.sleep(0)
    for number, name in enumerate(wanted_names, 1):
        if not number % ITEMS_PER_TURN:
            await asyncio.sleep(0)
        start = max(0, first_partition) if name == first_topic else 0
        topic = image.topic(name)
        if left == 0:
            return _page(topics, {"topic_name": name, "partition_index": start})
        if topic is None or not is_listed(name):
            topics.append(_missing(name))
            continue
        page = topic.partitions[start : start + left]
        topics.append(_described(topic, page, live, unreachable))
        left -= len(page)
        if start + len(page) < len(topic.partitions):
            return _page(topics, {"topic_name": name, "partition_index": start + len(page)})
    return _page(topics, None)


def _page(topics: list[Fields], next_cursor: Fields | None) -> Fields:
    return {"topics": topics, "next_cursor": next_cursor}


def _missing(name: str) -> Fields:
    code = ErrorCode.INVALID_TOPIC_EXCEPTION if topic_name_problem(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {
        "error_code": code if may_see(name) else ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "name": name,
        "topic_id": None,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [],
        "topic_authorized_operations": authorized_operations.of_topic(name),
    }


def _described(
    topic: TopicImage, partitions: tuple[PartitionImage, ...], live: frozenset[int], unreachable: frozenset[int]
) -> Fields:
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": list(_partitions(partitions, live, unreachable)),
        "topic_authorized_operations": authorized_operations.of_topic(topic.name),
    }


def _partitions(
    partitions: tuple[PartitionImage, ...], live: frozenset[int], unreachable: frozenset[int]
) -> Iterator[Fields]:
    for partition in partitions:
        error = leader_error(partition.leader, unreachable)
        yield {
            "error_code": error,
            "partition_index": partition.partition,
            "leader_id": NO_LEADER if error else partition.leader,
            "leader_epoch": partition.leader_epoch,
            "replica_nodes": partition.replicas,
            "isr_nodes": partition.isr,
            "eligible_leader_replicas": partition.elr,
            "last_known_elr": partition.last_known_elr,
            "offline_replicas": [replica for replica in partition.replicas if replica not in live],
        }
