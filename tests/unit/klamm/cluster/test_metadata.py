from __future__ import annotations

import uuid

import pytest

from klamm.cluster.metadata import NO_LEADER, ClusterView, Node
from klamm.errors import ErrorCode
from klamm.model import NO_LEADER_EPOCH, TopicPartition
from klamm.wire.v1 import broker_pb2, common_pb2

ID = uuid.UUID(int=1)
OTHER_ID = uuid.UUID(int=2)


def response(*topics: broker_pb2.TopicMetadata, brokers: tuple[int, ...] = (0, 1)) -> broker_pb2.MetadataResponse:
    return broker_pb2.MetadataResponse(
        cluster_id="c",
        brokers=[
            common_pb2.Node(
                node_id=broker, endpoint=common_pb2.Endpoint(host="h", port=9000 + broker), rack=f"r{broker}"
            )
            for broker in brokers
        ],
        topics=topics,
    )


def topic(name: str, *leaders: tuple[int, int], topic_id: uuid.UUID = ID) -> broker_pb2.TopicMetadata:
    """Returns a topic's metadata with leader and epoch of each partition."""
    return broker_pb2.TopicMetadata(
        name=name,
        topic_id=topic_id.bytes,
        partitions=[
            broker_pb2.PartitionMetadata(partition=number, leader=leader, leader_epoch=epoch, replicas=[0, 1], isr=[0])
            for number, (leader, epoch) in enumerate(leaders)
        ],
    )


def view(*topics: broker_pb2.TopicMetadata) -> ClusterView:
    return ClusterView().merged(response(*topics), None)


def test_a_view_returns_the_leader_and_leader_epoch_of_each_partition() -> None:
    cluster = view(topic("t", (1, 4), (NO_LEADER, 5), (7, 1)))

    assert cluster.leader_of(TopicPartition("t", 0)) == Node(node_id=1, host="h", port=9001, rack="r1")
    assert cluster.leader_epoch_of(TopicPartition("t", 0)) == 4
    assert cluster.partition_count("t") == 3
    assert [partition.partition for partition in cluster.partitions_of("t")] == [0, 1, 2]
    assert cluster.leader_of(TopicPartition("t", 1)) is None
    assert cluster.leader_of(TopicPartition("t", 2)) is None, "broker 7 is not alive"
    assert [available_partition.partition for available_partition in cluster.available_partitions("t")] == [0]


@pytest.mark.parametrize("tp", [TopicPartition("t", 1), TopicPartition("t", -1), TopicPartition("u", 0)])
def test_an_unknown_partition_has_no_leader(tp: TopicPartition) -> None:
    cluster = view(topic("t", (1, 4)))

    assert cluster.leader_of(tp) is None
    assert cluster.leader_epoch_of(tp) == NO_LEADER_EPOCH


def test_unknown_topic_has_no_partitions() -> None:
    assert view().partition_count("t") is None
    assert view().partitions_of("t") == ()


def test_answer_about_some_topics_keeps_the_others() -> None:
    cluster = view(topic("a", (0, 0)), topic("b", (0, 0)))

    cluster = cluster.merged(response(topic("b", (1, 1))), ["b"])

    assert cluster.leader_of(TopicPartition("a", 0)) == cluster.brokers[0]
    assert cluster.leader_of(TopicPartition("b", 0)) == cluster.brokers[1]


def test_answer_about_all_topics_drops_deleted_topics() -> None:
    cluster = view(topic("a", (0, 0)), topic("b", (0, 0)))

    assert set(cluster.merged(response(topic("b", (0, 0))), None).topics) == {"b"}


def test_a_topic_that_is_not_found_is_removed_and_has_an_error_until_it_is_found() -> None:
    missing = broker_pb2.TopicMetadata(name="a", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    cluster = view(topic("a", (0, 0))).merged(response(missing), ["a"])

    assert cluster.topic("a") is None
    assert cluster.topic_errors == {"a": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert not cluster.merged(response(topic("a", (0, 0))), ["a"]).topic_errors


def test_older_leader_epoch_from_a_lagging_broker_is_ignored() -> None:
    cluster = view(topic("t", (1, 5), (1, 5)))

    cluster = cluster.merged(response(topic("t", (0, 4), (0, 6))), ["t"])

    assert [(partition.leader, partition.leader_epoch) for partition in cluster.partitions_of("t")] == [(1, 5), (0, 6)]


def test_described_topics_replace_neither_newer_leaders_nor_other_topics() -> None:
    cluster = view(topic("t", (1, 5), (1, 5)), topic("u", (0, 1)))
    described = view(topic("t", (0, 4), (0, 6))).topics["t"]

    cluster = cluster.with_topics([described])

    assert [(partition.leader, partition.leader_epoch) for partition in cluster.partitions_of("t")] == [(1, 5), (0, 6)]
    assert cluster.leader_epoch_of(TopicPartition("u", 0)) == 1


def test_a_recreated_topic_may_have_a_lower_leader_epoch() -> None:
    cluster = view(topic("t", (1, 5))).merged(response(topic("t", (0, 0), topic_id=OTHER_ID)), ["t"])

    assert cluster.leader_epoch_of(TopicPartition("t", 0)) == 0


def test_a_leader_hint_with_a_newer_epoch_changes_the_leader() -> None:
    before = view(topic("t", (0, 5), (0, 5)))

    after = before.with_leader(TopicPartition("t", 1), 1, 6)

    assert [(partition.leader, partition.leader_epoch) for partition in after.partitions_of("t")] == [(0, 5), (1, 6)]
    assert before.leader_epoch_of(TopicPartition("t", 1)) == 5


def test_a_leader_hint_may_add_an_unknown_broker() -> None:
    tp, new = TopicPartition("t", 0), Node(node_id=9, host="new", port=9)

    after = view(topic("t", (0, 5))).with_leader(tp, 9, 6, [new])

    assert after.leader_of(tp) == new
    assert after.brokers[9] == new


def test_a_leader_hint_may_change_the_address_of_a_known_broker() -> None:
    tp, moved = TopicPartition("t", 0), Node(node_id=1, host="moved", port=9)

    assert view(topic("t", (0, 5))).with_leader(tp, 1, 6, [moved]).leader_of(tp) == moved


@pytest.mark.parametrize(
    ("tp", "leader", "epoch"),
    [
        (TopicPartition("t", 0), 1, 5),
        (TopicPartition("t", 0), 9, 6),
        (TopicPartition("t", 0), -1, 6),
        (TopicPartition("u", 0), 1, 6),
    ],
    ids=["same epoch", "unknown broker", "no leader", "unknown topic"],
)
def test_a_leader_hint_without_a_newer_epoch_or_a_known_leader_and_topic_is_ignored(
    tp: TopicPartition, leader: int, epoch: int
) -> None:
    before = view(topic("t", (0, 5)))

    assert before.with_leader(tp, leader, epoch) is before


def test_address_of_an_ipv6_host_has_brackets() -> None:
    assert Node(node_id=1, host="::1", port=5).address == "[::1]:5"
