from __future__ import annotations

import pytest

from klamm.errors import ErrorCode
from klamm.model import GROUP_METADATA_TOPIC
from klamm.wire.v1.controller_pb2 import CreatePartitionsRequest, NewPartitions, NewTopic, ReplicaAssignment
from klamm_controller.metadata.partitions import handle_create_partitions


def grow(cluster, *topics, validate_only=False):
    request = CreatePartitionsRequest(topics=topics, validate_only=validate_only)
    return cluster.apply(handle_create_partitions(request, cluster.image, cluster.policy, cluster.rng)).results


def assigned(partition, *broker_ids):
    return ReplicaAssignment(partition=partition, broker_ids=broker_ids)


def test_new_partitions_are_added_after_the_unchanged_old_ones(three_brokers):
    before = three_brokers.create_one("a", 2, 2).partitions
    (result,) = grow(three_brokers, NewPartitions(topic="a", total_count=5))
    assert result.error_code == 0
    after = three_brokers.topic("a").partitions
    assert after[:2] == before
    assert [p.partition for p in after] == [0, 1, 2, 3, 4]
    assert all(len(p.replicas) == 2 and p.leader == p.replicas[0] for p in after)


def test_new_partitions_get_the_requested_replicas(three_brokers):
    three_brokers.create_one("a", 1, 2)
    wanted = NewPartitions(topic="a", total_count=3, assignments=[assigned(1, 3, 1), assigned(2, 2, 3)])
    grow(three_brokers, wanted)
    assert [p.replicas for p in three_brokers.topic("a").partitions[1:]] == [(3, 1), (2, 3)]


def test_validate_only_creates_no_partition(one_broker):
    one_broker.create_one("a")
    (result,) = grow(one_broker, NewPartitions(topic="a", total_count=3), validate_only=True)
    assert result.error_code == 0
    assert len(one_broker.topic("a").partitions) == 1


REFUSED = [
    (NewPartitions(topic="nope", total_count=3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nope"),
    (NewPartitions(topic="a", total_count=2), ErrorCode.INVALID_PARTITIONS, "has 2 partitions"),
    (NewPartitions(topic="a", total_count=1), ErrorCode.INVALID_PARTITIONS, "cannot change to 1"),
    (NewPartitions(topic="a", total_count=-1), ErrorCode.INVALID_PARTITIONS, "cannot change to -1"),
    (NewPartitions(topic="a", total_count=103), ErrorCode.POLICY_VIOLATION, "101 new partitions"),
    (NewPartitions(topic=GROUP_METADATA_TOPIC, total_count=60), ErrorCode.INVALID_PARTITIONS, "internal"),
    (
        NewPartitions(topic="a", total_count=4, assignments=[assigned(2, 1)]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "1 partitions have assigned replicas, but 2 are added",
    ),
    (
        NewPartitions(topic="a", total_count=3, assignments=[assigned(0, 1)]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "expected [2]",
    ),
    (
        NewPartitions(topic="a", total_count=3, assignments=[assigned(2, 1, 2)]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "has 2 replicas, expected 1",
    ),
]


@pytest.mark.parametrize(("wanted", "code", "said"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_an_invalid_partition_count_is_refused_without_effect_on_other_topics(three_brokers, wanted, code, said):
    three_brokers.create_one("a", 2)
    three_brokers.create_one("b")
    three_brokers.create(NewTopic(name=GROUP_METADATA_TOPIC, partition_count=-1, replication_factor=-1))
    refused, grown = grow(three_brokers, wanted, NewPartitions(topic="b", total_count=2))
    assert ErrorCode.of(refused.error_code) is code
    assert said in refused.error_message
    assert grown.error_code == 0
    assert (len(three_brokers.topic("a").partitions), len(three_brokers.topic("b").partitions)) == (2, 2)


def test_a_topic_that_is_named_twice_gets_no_partitions(one_broker):
    one_broker.create_one("a")
    results = grow(one_broker, NewPartitions(topic="a", total_count=2), NewPartitions(topic="a", total_count=3))
    assert [r.error_code for r in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert len(one_broker.topic("a").partitions) == 1
