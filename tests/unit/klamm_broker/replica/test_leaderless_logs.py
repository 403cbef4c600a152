"""Tests that a broker reports the ends of logs whose partitions have no leader."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from klamm.model import TopicId, TopicPartition
from klamm.records.encoder import encode_batch
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.partition_log import ClientAppend
from klamm_broker.replica import leaderless_logs
from klamm_broker.replica.leaderless_logs import LeaderlessLogs
from klamm_broker.replica.partition import Partition
from klamm_server.metadata.entities import NO_LEADER, PartitionImage
from tests.support.log_steps import create_log, open_logs

BROKER, BROKER_EPOCH = 1, 40
TOPIC_ID = TopicId(uuid.UUID(int=7))
MakePartition = Callable[[int], Partition]


class Brokers:
    """A cluster in which every broker is registered and may lead."""

    def broker_epoch(self, broker_id: int) -> int:
        return BROKER_EPOCH

    def is_eligible(self, broker_id: int) -> bool:
        return True


@pytest.fixture
def make_partition(tmp_path: Path) -> MakePartition:
    """Returns a function that makes replicas over real logs."""
    logs = open_logs(tmp_path)

    def make(number: int) -> Partition:
        name = TopicPartition("flights", number)
        return Partition(
            name,
            create_log(logs, name, TOPIC_ID, LogConfig()),
            topic_id=TOPIC_ID,
            broker_id=BROKER,
            high_watermark=0,
            brokers=Brokers(),
            lag_time_max_ms=1_000,
        )

    return make


def apply(partition: Partition, leader: int, leader_epoch: int) -> None:
    partition.apply(
        PartitionImage(
            partition=partition.topic_partition.partition,
            replicas=(1, 2),
            isr=() if leader == NO_LEADER else (leader,),
            leader=leader,
            leader_epoch=leader_epoch,
            partition_epoch=leader_epoch,
        ),
        now_ms=0,
    )


@pytest.fixture
def partition(make_partition: MakePartition) -> Partition:
    """A replica with three records of leader epoch 4, whose partition has no leader in epoch 5."""
    partition = make_partition(0)
    apply(partition, leader=BROKER, leader_epoch=4)
    partition.append(ClientAppend(memoryview(encode_batch([(0, None, b"v", ())] * 3))), now_ms=0)
    apply(partition, leader=NO_LEADER, leader_epoch=5)
    return partition


def reported(logs: LeaderlessLogs) -> list[tuple[int, int, int, int]]:
    return [
        (end.partition, end.leader_epoch, end.last_epoch, end.log_end_offset)
        for request in logs.requests(BROKER_EPOCH)
        for end in request.logs
    ]


def test_a_log_without_leader_is_reported_with_its_end(partition):
    logs = LeaderlessLogs(BROKER)
    assert logs.note(partition, is_hosted=True)
    (request,) = logs.requests(BROKER_EPOCH)
    assert (request.broker_id, request.broker_epoch) == (BROKER, BROKER_EPOCH)
    assert [end.topic_id for end in request.logs] == [TOPIC_ID.bytes]
    assert reported(logs) == [(0, 5, 4, 3)]


def test_an_empty_log_is_reported_without_an_epoch(make_partition):
    logs, empty = LeaderlessLogs(BROKER), make_partition(3)
    apply(empty, leader=NO_LEADER, leader_epoch=1)
    logs.note(empty, is_hosted=True)
    assert reported(logs) == [(3, 1, -1, 0)]


@pytest.mark.parametrize("leader", [BROKER, 2])
def test_a_log_is_reported_until_its_partition_has_a_leader(partition, leader):
    logs = LeaderlessLogs(BROKER)
    logs.note(partition, is_hosted=True)
    apply(partition, leader=leader, leader_epoch=6)
    assert not logs.note(partition, is_hosted=True)
    assert (len(logs), reported(logs)) == (0, [])


def test_a_log_that_the_broker_no_longer_hosts_is_not_reported(partition):
    logs = LeaderlessLogs(BROKER)
    logs.note(partition, is_hosted=True)
    assert not logs.note(partition, is_hosted=False)
    assert reported(logs) == []
    assert not logs.note(partition, is_hosted=False), "a second time changes nothing"


def test_a_replica_without_metadata_is_not_reported(make_partition):
    logs = LeaderlessLogs(BROKER)
    assert not logs.note(make_partition(0), is_hosted=True)


def test_many_leaderless_logs_are_reported_in_several_requests(make_partition, monkeypatch):
    monkeypatch.setattr(leaderless_logs, "LOGS_PER_REQUEST", 2)
    logs = LeaderlessLogs(BROKER)
    for number in range(5):
        partition = make_partition(number)
        apply(partition, leader=NO_LEADER, leader_epoch=1)
        logs.note(partition, is_hosted=True)
    assert [len(request.logs) for request in logs.requests(BROKER_EPOCH)] == [2, 2, 1]
    assert [number for number, *_ in reported(logs)] == list(range(5))
