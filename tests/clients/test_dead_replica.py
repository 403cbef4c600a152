"""Klamm and Apache Kafka end the same reassignments while a replica that stays is dead (KAFKA-19975)."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from klamm_broker.kafka.api import ApiKey
from tests.clients.conftest import Cluster
from tests.clients.scenarios import NO_FLAGS, TIMEOUT_MS
from tests.support.apache_kafka import ApacheKafka, running_kafka
from tests.support.kafka_wire import KafkaWire
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

DEAD = 2
ENDING = {"swapped": ([1, 2], [2, 3]), "grown": ([1, 2], [1, 2, 3])}
"""The replicas before and after a reassignment that ends."""
WAITING = {"shrunk": ([1, 2, 3], [2, 3])}
"""The same of a reassignment that waits for the dead broker, because it removes more replicas than it adds."""


def test_klamm_ends_a_reassignment_while_a_replica_that_stays_is_dead(cluster: Cluster, name: str) -> None:
    reassign_with_a_dead_replica(cluster, name)


def test_kafka_ends_a_reassignment_while_a_replica_that_stays_is_dead(tmp_path: pathlib.Path, name: str) -> None:
    with running_kafka(tmp_path, brokers=3) as kafka:
        reassign_with_a_dead_replica(kafka, name)


def reassign_with_a_dead_replica(cluster: Cluster | ApacheKafka, prefix: str) -> None:
    plan = {f"{prefix}-{kind}": each for kind, each in (ENDING | WAITING).items()}
    waiting = {f"{prefix}-{kind}" for kind in WAITING}
    with KafkaWire(cluster.bootstrap) as wire:
        create(wire, {topic: before for topic, (before, _) in plan.items()})
        with cluster.frozen_broker(DEAD):
            wait_until(lambda: all(DEAD not in in_sync(wire, topic) for topic in plan))
            reassign(wire, {topic: after for topic, (_, after) in plan.items()})
            for topic in set(plan) - waiting:
                wait_until_in_sync(wire, topic, set(plan[topic][1]) - {DEAD})
            wait_until(lambda: reassigned(wire) & set(plan) == waiting, lambda: str(reassigned(wire)))
            assert all(replicas(wire, topic) == plan[topic][1] for topic in set(plan) - waiting)
        for topic, (_, after) in plan.items():
            wait_until_in_sync(wire, topic, set(after))
        assert not reassigned(wire) & set(plan)


def create(wire: KafkaWire, assignments: dict[str, list[int]]) -> None:
    topics = [
        {
            "name": topic,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": ids}],
            "configs": [],
        }
        for topic, ids in assignments.items()
    ]
    answer = wire.ask(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout": TIMEOUT_MS, "validate_only": False})
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.none}
    for topic, ids in assignments.items():
        wait_until_in_sync(wire, topic, set(ids))


def reassign(wire: KafkaWire, targets: dict[str, list[int]]) -> None:
    topics = [
        {"name": topic, "partitions": [{"partition_index": 0, "replicas": ids}]} for topic, ids in targets.items()
    ]
    answer = wire.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"timeout": TIMEOUT_MS, "topics": topics})
    assert {partition.error_code for topic in answer.responses for partition in topic.partitions} == {ErrorCode.none}


def wait_until_in_sync(wire: KafkaWire, topic: str, replicas: set[int]) -> None:
    wait_until(lambda: in_sync(wire, topic) == replicas)


def reassigned(wire: KafkaWire) -> set[str]:
    """Returns the topics with a reassignment in progress."""
    answer = wire.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"timeout": TIMEOUT_MS, "topics": None})
    return {topic.name for topic in answer.topics}


def in_sync(wire: KafkaWire, topic: str) -> set[int]:
    found = partition_of(wire, topic)
    return set() if found is None else set(found.isr_nodes)


def replicas(wire: KafkaWire, topic: str) -> list[int]:
    return list(partition_of(wire, topic).replica_nodes)


def partition_of(wire: KafkaWire, topic: str) -> Any:
    """Returns the topic's only partition, or None if the broker does not know the topic yet."""
    asked = {"topics": [{"name": topic, "topic_id": None}], **NO_FLAGS}
    (found,) = wire.ask(ApiKey.METADATA, 12, asked).topics
    return found.partitions[0] if found.partitions else None
