from __future__ import annotations

import random

import pytest

from klamm.errors import ErrorCode
from klamm.model import GROUP_METADATA_TOPIC, topic_collision_key
from klamm.wire.v1.controller_pb2 import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeTopicsRequest,
    NewTopic,
    ReplicaAssignment,
)
from klamm_controller.metadata.describe_topics import describe_topics
from klamm_controller.metadata.policy import InternalTopicPolicy, TopicPolicy
from klamm_controller.metadata.topics import TopicCreation, handle_delete_topics
from tests.support.whole_decisions import handle_create_topics


def new(name: str, partitions: int = 1, replicas: int = 1, **more: object) -> NewTopic:
    return NewTopic(name=name, partition_count=partitions, replication_factor=replicas, **more)


def by_hand(name: str, *replicas: list[int], partitions: int = -1, factor: int = -1) -> NewTopic:
    assignments = [ReplicaAssignment(partition=n, broker_ids=ids) for n, ids in enumerate(replicas)]
    return NewTopic(name=name, partition_count=partitions, replication_factor=factor, assignments=assignments)


REFUSED = [
    (new(""), ErrorCode.INVALID_TOPIC_EXCEPTION, "empty"),
    (new("."), ErrorCode.INVALID_TOPIC_EXCEPTION, "reserved"),
    (new(".."), ErrorCode.INVALID_TOPIC_EXCEPTION, "reserved"),
    (new("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION, "249"),
    (new("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "'a b'"),
    (new("café"), ErrorCode.INVALID_TOPIC_EXCEPTION, "café"),
    (new("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "a/b"),
    (new("__cluster_metadata"), ErrorCode.INVALID_REQUEST, "controllers' metadata log"),
    (new("taken"), ErrorCode.TOPIC_ALREADY_EXISTS, "taken"),
    (new("dot_ted"), ErrorCode.INVALID_TOPIC_EXCEPTION, "dot.ted"),
    (new("t", 0), ErrorCode.INVALID_PARTITIONS, "0 partitions"),
    (new("t", -2), ErrorCode.INVALID_PARTITIONS, "-2 partitions"),
    (new("t", 101), ErrorCode.POLICY_VIOLATION, "controller.partitions.per.request.max = 100"),
    (new("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "0 replicas"),
    (new("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR, "-2 replicas"),
    (new("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR, "factor 4 is larger"),
    (new("t", configs={"retention.mss": "1"}), ErrorCode.INVALID_CONFIG, "retention.mss"),
    (new("t", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG, "'soon'"),
    (new("t", configs={"cleanup.policy": "burn"}), ErrorCode.INVALID_CONFIG, "'burn'"),
    (
        new("t", configs={"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "3"}),
        ErrorCode.INVALID_CONFIG,
        "max.compaction.lag.ms=3",
    ),
    (by_hand("t", [1], partitions=1), ErrorCode.INVALID_REQUEST, "must be -1"),
    (by_hand("t", [1], factor=1), ErrorCode.INVALID_REQUEST, "must be -1"),
    (by_hand("t", [1], []), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 1 has no replicas"),
    (by_hand("t", [1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "twice"),
    (by_hand("t", [1, 2], [3]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 1 has 1 replicas, expected 2"),
    (by_hand("t", [7]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 7"),
    (by_hand(GROUP_METADATA_TOPIC, [1]), ErrorCode.INVALID_PARTITIONS, "6 partitions, not 1"),
    (
        NewTopic(
            name="t",
            partition_count=-1,
            replication_factor=-1,
            assignments=[ReplicaAssignment(partition=1, broker_ids=[1])],
        ),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "partitions [1] are assigned, expected [0]",
    ),
]


@pytest.mark.parametrize(
    ("topic", "code", "said"), REFUSED, ids=[f"{t.name[:9]}-{c.name}-{i}" for i, (t, c, _) in enumerate(REFUSED)]
)
def test_an_invalid_topic_is_refused_and_the_others_are_created(three_brokers, topic, code, said):
    three_brokers.create_one("taken")
    three_brokers.create_one("dot.ted")

    refused, created = three_brokers.create(topic, new("good"))

    assert ErrorCode.of(refused.error_code) is code
    assert said in refused.error_message
    assert created.error_code == 0
    assert sorted(three_brokers.image.topics_by_name) == ["dot.ted", "good", "taken"]


def test_a_topic_gets_partitions_configs_and_a_leader(three_brokers):
    topic = three_brokers.create_one("orders", 4, 3, retention_ms="1000")

    assert topic.topic_id.version == 4
    assert len(topic.partitions) == 4
    for partition in topic.partitions:
        assert sorted(partition.replicas) == [1, 2, 3]
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    assert three_brokers.image.topic_configs("orders") == {"retention.ms": "1000"}


def test_minus_one_selects_the_defaults_and_the_reply_names_them(three_brokers):
    three_brokers.policy = TopicPolicy(
        num_partitions=5,
        default_replication_factor=2,
        partitions_per_request_max=100,
        delete_topic_enable=True,
        internal_topics={},
    )
    (created,) = three_brokers.create(new("orders", -1, -1))
    assert (created.partition_count, created.replication_factor) == (5, 2)
    assert created.topic_id == three_brokers.topic("orders").topic_id.bytes


def test_validate_only_returns_the_same_answer_and_creates_nothing(three_brokers):
    before = three_brokers.image
    good, bad = three_brokers.create(new("orders", 2), new("x", 0), validate_only=True)
    assert (good.error_code, good.partition_count) == (0, 2)
    assert bad.error_code == ErrorCode.INVALID_PARTITIONS
    assert three_brokers.image.topics_by_name == before.topics_by_name


def test_a_topic_name_that_is_requested_twice_is_refused_twice(one_broker):
    first, other, second = one_broker.create(new("a"), new("b"), new("a"))
    assert [first.error_code, other.error_code, second.error_code] == [42, 0, 42]
    assert list(one_broker.image.topics_by_name) == ["b"]


def test_two_new_names_of_one_request_can_collide(one_broker):
    first, second = one_broker.create(new("a.b"), new("a_b"))
    assert first.error_code == 0
    assert second.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "a.b" in second.error_message


def test_a_topic_created_in_the_same_request_is_found_as_a_collision(one_broker):
    """The table of collisions is built late, and must include topics created before in the same request."""
    assert topic_collision_key("x-y") == "x-y"
    assert [t.error_code for t in one_broker.create(new("x"), new("p.q"), new("p_q"))] == [0, 0, 17]


def test_the_partition_bound_applies_to_the_whole_request(one_broker):
    results = one_broker.create(new("a", 60), new("b", 60), new("c", 40), new("d", 1))
    assert [r.error_code for r in results] == [0, ErrorCode.POLICY_VIOLATION, 0, ErrorCode.POLICY_VIOLATION]


def test_a_topic_cannot_be_created_without_an_unfenced_broker(cluster):
    (refused,) = cluster.create(new("a"))
    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR

    cluster.register_broker(1)
    (refused,) = cluster.create(new("a"))
    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "fenced" in refused.error_message
    (refused,) = cluster.create(by_hand("a", [1]))
    assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "fenced" in refused.error_message


def test_a_topic_gets_the_requested_replicas(three_brokers):
    (created,) = three_brokers.create(by_hand("a", [3, 1], [2, 3]))
    assert (created.partition_count, created.replication_factor) == (2, 2)
    assert [p.replicas for p in three_brokers.topic("a").partitions] == [(3, 1), (2, 3)]
    assert [p.leader for p in three_brokers.topic("a").partitions] == [3, 2]


def test_a_fenced_replica_chosen_by_hand_is_neither_leader_nor_in_sync(three_brokers):
    three_brokers.register_broker(3, life=1)
    three_brokers.create(by_hand("a", [3, 1]))
    assert (three_brokers.partition("a").leader, three_brokers.partition("a").isr) == (1, (1,))


def test_an_internal_topic_gets_its_partition_count_and_configs_from_the_cluster(one_broker):
    one_broker.add_coordinator(7)
    asked = new(GROUP_METADATA_TOPIC, 3, 1, configs={"cleanup.policy": "delete", "retention.ms": "1"})
    decision = handle_create_topics(
        CreateTopicsRequest(topics=[asked]), one_broker.image, one_broker.policy, random.Random(1)
    )
    (created,) = one_broker.apply(decision).topics

    assert (created.error_code, created.partition_count) == (0, 6)
    assert one_broker.image.topic_configs(GROUP_METADATA_TOPIC) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    assert one_broker.shard_owners(GROUP_METADATA_TOPIC) == [7] * 6, "assigned by the same batch"


def test_the_replication_factor_of_an_internal_topic_defaults_to_its_own_setting(three_brokers):
    three_brokers.policy = TopicPolicy(
        num_partitions=1,
        default_replication_factor=1,
        partitions_per_request_max=100,
        delete_topic_enable=True,
        internal_topics={GROUP_METADATA_TOPIC: InternalTopicPolicy(partition_count=2, replication_factor=3)},
    )
    (created,) = three_brokers.create(new(GROUP_METADATA_TOPIC, -1, -1))
    assert created.replication_factor == 3


def delete(cluster, *names, policy=None):
    request = DeleteTopicsRequest(topics=names)
    return cluster.apply(handle_delete_topics(request, cluster.image, policy or cluster.policy)).results


def test_a_deleted_topic_leaves_no_configs_and_a_new_one_gets_a_new_id(one_broker):
    one_broker.create_one("a", 3, retention_ms="5")
    one_broker.create_one("b")
    before = one_broker.topic("a").topic_id

    gone, unknown = delete(one_broker, "a", "nope")

    assert gone.error_code == 0
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "nope" in unknown.error_message
    assert list(one_broker.image.topics_by_name) == ["b"]
    assert one_broker.image.topic_configs("a") == {}
    assert one_broker.create_one("a").topic_id != before


def test_duplicate_internal_and_disabled_topic_deletions_are_refused(one_broker):
    one_broker.create_one("a")
    one_broker.create(new(GROUP_METADATA_TOPIC, -1, -1))
    twice = delete(one_broker, "a", "a")
    assert [r.error_code for r in twice] == [ErrorCode.INVALID_REQUEST] * 2
    (internal,) = delete(one_broker, GROUP_METADATA_TOPIC)
    assert internal.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    forbidding = TopicPolicy(
        num_partitions=1,
        default_replication_factor=1,
        partitions_per_request_max=1,
        delete_topic_enable=False,
        internal_topics={},
    )
    (disabled,) = delete(one_broker, "a", policy=forbidding)
    assert disabled.error_code == ErrorCode.TOPIC_DELETION_DISABLED
    assert sorted(one_broker.image.topics_by_name) == [GROUP_METADATA_TOPIC, "a"]


def test_describe_returns_all_topics_by_name_or_the_named_ones_in_request_order(one_broker):
    one_broker.create_one("b", 2)
    one_broker.create_one("a")
    one_broker.create(new(GROUP_METADATA_TOPIC, -1, -1))

    everything = list(describe_topics(DescribeTopicsRequest(), one_broker.image))
    assert [(t.name, t.internal) for t in everything] == [(GROUP_METADATA_TOPIC, True), ("a", False), ("b", False)]
    some = list(describe_topics(DescribeTopicsRequest(topics=["b", "nope", "a"]), one_broker.image))
    assert [(t.name, t.error_code) for t in some] == [("b", 0), ("nope", 3), ("a", 0)]
    assert some[0].topic_id == one_broker.topic("b").topic_id.bytes
    assert [(p.partition, p.leader, list(p.replicas), list(p.isr)) for p in some[0].partitions] == [
        (0, 1, [1], [1]),
        (1, 1, [1], [1]),
    ]


def test_a_creation_in_parts_refuses_the_same_topics_as_the_whole_request(three_brokers):
    topics = [new("a", 40), new("b.c", 40), new("d"), new("b_c"), new("d"), new("e", 21)]
    creation = TopicCreation(CreateTopicsRequest(topics=topics), three_brokers.policy, random.Random(1))
    parts = []
    for _ in creation.parts():
        parts.append(three_brokers.apply(creation.next_part(three_brokers.image, partitions_max=40)))
    assert [[topic.name for topic in part.topics] for part in parts] == [["a"], ["b.c"], ["d", "b_c", "d", "e"]]
    assert [topic.error_code for part in parts for topic in part.topics] == [
        0,
        0,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.POLICY_VIOLATION,
    ]


def test_a_validation_in_parts_finds_collisions_with_earlier_parts(three_brokers):
    request = CreateTopicsRequest(topics=[new("b.c"), new("b_c")], validate_only=True)
    creation = TopicCreation(request, three_brokers.policy, random.Random(1))
    parts = [creation.next_part(three_brokers.image, partitions_max=1) for _ in creation.parts()]
    assert [topic.error_code for part in parts for topic in part.reply.topics] == [
        0,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert not any(part.records for part in parts)


def test_a_colliding_topic_name_can_be_used_after_the_other_topic_is_deleted(one_broker):
    assert [topic.error_code for topic in one_broker.create(new("a.b"))] == [0]
    (refused,) = one_broker.create(new("a_b"))
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    one_broker.apply(handle_delete_topics(DeleteTopicsRequest(topics=["a.b"]), one_broker.image, one_broker.policy))
    assert [topic.error_code for topic in one_broker.create(new("a_b"))] == [0]
