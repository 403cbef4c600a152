"""Tests of features for which it matters that the leaders of a topic are several brokers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import grpc
import pytest

from klamm import Admin, Consumer, NewTopic, TopicPartition
from klamm.errors import ErrorCode
from klamm.wire.v1 import broker_pb2 as b
from tests.integration.command_line.test_up_processes import Up, up
from tests.support.reading import read_all
from tests.support.spreading import check_topic, check_values, copied_offsets, fill, read_as_group, spreading
from tests.support.waiting import patience, wait_until

BROKERS = {1, 2, 3}
RECORDS = 60_000
PLAIN = [b.PlainRecord(key=b"key-%d" % number, value=b"%d" % number) for number in range(100)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("three") / "data", "--brokers", "3") as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: Up) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        yield admin


def create(admin: Admin, topic: str, partitions: int) -> None:
    """Creates a topic with a replica on each broker."""
    admin.create_topics([NewTopic(topic, partition_count=partitions, replication_factor=3)])
    wait_until(lambda: set(leaders(admin, topic).values()) == BROKERS, topic)


def leaders(admin: Admin, topic: str) -> dict[int, int]:
    return {partition.partition: partition.leader for partition in admin.describe_topics([topic])[topic].partitions}


def produce(address: str, topic: str, records: list[b.PlainRecord]) -> b.ProduceRecordsResponse:
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary(
            "/klamm.v1.Broker/ProduceRecords",
            request_serializer=b.ProduceRecordsRequest.SerializeToString,
            response_deserializer=b.ProduceRecordsResponse.FromString,
        )
        response: b.ProduceRecordsResponse = call(
            b.ProduceRecordsRequest(topic=topic, records=records), timeout=patience()
        )
        return response


def test_plain_records_for_other_leaders_are_refused_with_the_addresses_of_these(cluster: Up, admin: Admin) -> None:
    create(admin, "plain", 6)
    addresses = {broker.node_id: f"{broker.host}:{broker.port}" for broker in admin.describe_cluster().brokers}
    left = list(PLAIN)
    answers = []

    def is_known() -> bool:
        answers.append(produce(addresses[1], "plain", left))
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION not in {record.error_code for record in answers[-1].records}

    wait_until(is_known)
    answer = answers[-1]
    by_leader: dict[int, list[b.PlainRecord]] = {}
    for record, one in zip(left, answer.records, strict=True):
        if one.error_code:
            assert one.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert one.offset == -1
            assert one.current_leader == leaders(admin, "plain")[one.partition]
            by_leader.setdefault(one.current_leader, []).append(record)
    assert by_leader.keys() == {2, 3}
    named = {
        node_endpoint.node_id: f"{node_endpoint.endpoint.host}:{node_endpoint.endpoint.port}"
        for node_endpoint in answer.node_endpoints
    }
    assert named == {number: addresses[number] for number in (2, 3)}
    for number, records in by_leader.items():
        assert {record.error_code for record in produce(named[number], "plain", records).records} == {0}
    found = read_all(cluster.bootstrap, [TopicPartition("plain", number) for number in range(6)])
    assert sorted(one.value for one in found) == sorted(one.value for one in PLAIN)


def test_a_topic_is_spread_over_several_leaders_although_a_broker_is_killed(cluster: Up, admin: Admin) -> None:
    create(admin, "source", 3)
    fill(cluster.bootstrap, "source", 0, RECORDS)
    settings = {
        "bootstrap_servers": cluster.bootstrap,
        "group_id": "readers",
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
    }
    by_key: dict[bytes, list[int]] = defaultdict(list)
    with Consumer(**settings) as consumer:
        consumer.subscribe(["source"])
        read_as_group(consumer, by_key, RECORDS)
    with spreading(cluster.bootstrap, "source", "target", "--partitions", "9", "--cut") as process:
        wait_until(lambda: copied_offsets(admin, "target") > 0 or process.has_ended)
        assert not process.has_ended, process.finish()
        cluster.children()["klamm_broker 2"].kill()
        status, out = process.finish()
    assert status == 0, out
    assert "group readers is moved: start its members on target" in out
    wait_until(lambda: "klamm_broker 2" in cluster.children())
    check_topic(cluster.bootstrap, "target", RECORDS)
    described = admin.describe_topics(["target"])["target"]
    assert {len(partition.target_replicas) for partition in described.partitions} == {3}
    fill(cluster.bootstrap, "target", RECORDS, RECORDS + 1_000)
    with Consumer(**settings) as consumer:
        consumer.subscribe(["target"])
        read_as_group(consumer, by_key, 1_000)
    check_values(by_key, RECORDS + 1_000, story="the group")
