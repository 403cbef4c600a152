"""Tests which replica unclean recovery elects, and which reports it waits for (KIP-966)."""

from __future__ import annotations

import uuid

import pytest

from klamm.errors import ErrorCode
from klamm.wire.v1.controller_pb2 import (
    ReplicaLogEnd,
    ReportReplicaLogsRequest,
    ResignedReplicas,
    ResignReplicasRequest,
    UnregisterBrokerRequest,
)
from klamm_controller.metadata import replica_logs
from klamm_controller.metadata.brokers import handle_broker_session_end, handle_unregister_broker
from klamm_controller.metadata.replica_logs import ReplicaLog, ReplicaLogs
from klamm_controller.metadata.resignation import handle_resign_replicas
from klamm_controller.metadata.sweep import CHANGES_PER_EVENT
from klamm_controller.metadata.unclean_recovery import handle_replica_logs, replica_logs_parts
from klamm_server.metadata.entities import NO_LEADER


def end_session(cluster, broker_id):
    cluster.apply(handle_broker_session_end(broker_id, cluster.image))


def come_back(cluster, broker_id, life=1):
    """Registers the broker again after an unclean stop."""
    cluster.register_broker(broker_id, life=life)
    cluster.beat(broker_id)


@pytest.fixture
def all_lost(three_brokers):
    """Lets brokers 3, 2 and 1 die in turn and return. 1 and 2 were the last that had everything."""
    three_brokers.create_by_hand("a", (1, 2, 3), min_insync_replicas="2")
    for broker_id in (3, 2, 1):
        end_session(three_brokers, broker_id)
    for broker_id in (1, 2, 3):
        come_back(three_brokers, broker_id)
    partition = three_brokers.partition("a")
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (-1, (), (), (1, 2))
    return three_brokers


def test_the_replica_with_the_most_complete_log_is_elected_and_not_the_last_leader(all_lost):
    assert all_lost.report_log(1, -1, 0) == NO_LEADER
    assert all_lost.report_log(3, 0, 20) == NO_LEADER
    assert all_lost.report_log(2, 0, 20) == 2
    partition = all_lost.partition("a")
    assert (partition.isr, partition.elr, partition.last_known_elr) == ((2,), (), ())
    assert all_lost.unclean == [("a", 0, 2)]


def test_a_replica_that_left_the_isr_earlier_is_elected_if_its_log_is_longest(all_lost):
    all_lost.report_log(1, -1, 0)
    all_lost.report_log(2, 0, 15)
    assert all_lost.report_log(3, 0, 20) == 3


def test_a_log_with_a_later_leader_epoch_wins_over_a_longer_log(all_lost):
    all_lost.report_log(1, 2, 10)
    all_lost.report_log(2, 1, 30)
    assert all_lost.report_log(3, 1, 30) == 1


def test_no_replica_is_elected_before_each_replica_of_elr_and_last_known_elr_has_reported(three_brokers):
    three_brokers.create_by_hand("a", (1, 2, 3), min_insync_replicas="2")
    for broker_id in (3, 2, 1):
        end_session(three_brokers, broker_id)
    come_back(three_brokers, 3)
    assert three_brokers.report_log(3, 0, 20) == NO_LEADER
    come_back(three_brokers, 2)
    assert three_brokers.partition("a").elr == (1,), "it may come back as it was"
    assert three_brokers.report_log(2, 0, 20) == NO_LEADER
    come_back(three_brokers, 1)
    assert three_brokers.report_log(1, 0, 20) == 1, "of equal ones the first replica"


def test_a_resigned_replica_is_elected_only_if_its_log_is_longer(all_lost):
    request = ResignReplicasRequest(
        broker_id=1,
        broker_epoch=all_lost.image.brokers[1].broker_epoch,
        resigned=[ResignedReplicas(topic_id=all_lost.topic("a").topic_id.bytes, partitions=[0])],
    )
    all_lost.apply(handle_resign_replicas(request, all_lost.image))
    all_lost.report_log(1, 0, 20)
    all_lost.report_log(2, 0, 20)
    assert all_lost.report_log(3, 0, 19) == 2


def test_a_log_report_with_an_earlier_broker_or_leader_epoch_is_ignored(all_lost):
    for broker_id in (1, 2):
        all_lost.report_log(broker_id, 0, 20)
    epoch = all_lost.partition("a").leader_epoch
    assert all_lost.report_log(3, 0, 20, leader_epoch=epoch - 1) == NO_LEADER
    come_back(all_lost, 2, life=2)
    assert all_lost.report_log(3, 0, 19) == NO_LEADER, "broker 2 may have lost something since it reported"
    assert all_lost.report_log(2, 0, 10) == 1


def test_a_log_report_with_a_stale_or_unknown_broker_is_refused(all_lost):
    request = ReportReplicaLogsRequest(broker_id=1, broker_epoch=0)
    assert handle_replica_logs(request, all_lost.image, all_lost.logs).reply.error_code == ErrorCode.STALE_BROKER_EPOCH
    request = ReportReplicaLogsRequest(broker_id=9, broker_epoch=0)
    reply = handle_replica_logs(request, all_lost.image, all_lost.logs).reply
    assert reply.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_the_election_does_not_wait_for_an_unregistered_broker(three_brokers):
    three_brokers.create_by_hand("a", (1, 2, 3), min_insync_replicas="2")
    for broker_id in (3, 2, 1):
        end_session(three_brokers, broker_id)
    for broker_id in (1, 3):
        come_back(three_brokers, broker_id)
        assert three_brokers.report_log(broker_id, 0, 10 * broker_id) == NO_LEADER
    three_brokers.apply(handle_unregister_broker(UnregisterBrokerRequest(broker_id=2), three_brokers.image))
    assert three_brokers.report_log(1, 0, 10) == 3


def test_a_partition_whose_complete_logs_are_all_lost_elects_no_leader(three_brokers):
    three_brokers.create_by_hand("a", (1, 2))
    end_session(three_brokers, 2)
    end_session(three_brokers, 1)
    three_brokers.register_broker(1, life=1, log_dir_ids=[b"another".rjust(16)])
    for broker_id in (1, 2):
        three_brokers.beat(broker_id)
        assert three_brokers.report_log(broker_id, 0, broker_id) == NO_LEADER


def test_the_recovery_strategy_none_elects_no_leader(three_brokers):
    three_brokers.create_by_hand("a", (1, 2), unclean_recovery_strategy="None")
    for broker_id in (2, 1):
        end_session(three_brokers, broker_id)
    for broker_id in (1, 2):
        come_back(three_brokers, broker_id)
    assert [three_brokers.report_log(broker_id, 0, 10) for broker_id in (1, 2)] == [NO_LEADER, NO_LEADER]


@pytest.mark.parametrize(
    "configs", [{"unclean_leader_election_enable": "true"}, {"unclean_recovery_strategy": "Aggressive"}]
)
def test_with_unclean_elections_the_most_complete_live_replica_is_elected_immediately(three_brokers, configs):
    three_brokers.create_by_hand("a", (1, 2, 3), **configs)
    for broker_id in (3, 2, 1):
        end_session(three_brokers, broker_id)
    for broker_id in (2, 3):
        three_brokers.beat(broker_id)
    assert three_brokers.partition("a").elr == (1,)
    assert three_brokers.report_log(2, 0, 5) == NO_LEADER
    assert three_brokers.report_log(3, 0, 7) == 3
    partition = three_brokers.partition("a")
    assert (partition.isr, partition.elr) == ((3,), ())


def test_an_elr_member_that_returns_is_elected_before_any_report(three_brokers):
    three_brokers.create_by_hand("a", (1, 2), min_insync_replicas="2", unclean_leader_election_enable="true")
    for broker_id in (2, 1):
        end_session(three_brokers, broker_id)
    three_brokers.beat(1)
    assert (three_brokers.partition("a").leader, three_brokers.unclean) == (1, [])


def test_log_reports_are_pruned_if_the_partition_is_gone_or_has_a_leader(all_lost, monkeypatch):
    monkeypatch.setattr(replica_logs, "PRUNE_FROM", 2)
    logs, log = ReplicaLogs(), ReplicaLog(broker_epoch=1, leader_epoch=1, last_epoch=0, log_end_offset=20)
    key = (all_lost.topic("a").topic_id, 0)
    logs.note(key, 1, log)
    for number in range(3):
        logs.note((uuid.UUID(int=number), 0), 1, log)
        logs.prune(all_lost.image)
        assert len(logs) == 1, "only of the partition that exists and has no leader"
    for broker_id in (1, 2, 3):
        leader = all_lost.report_log(broker_id, 0, 20)
    assert leader == 1
    logs.note((uuid.UUID(int=3), 0), 1, log)
    logs.prune(all_lost.image)
    assert len(logs) == 0


def test_log_reports_are_pruned_only_after_their_number_has_doubled(all_lost, monkeypatch):
    monkeypatch.setattr(replica_logs, "PRUNE_FROM", 4)
    logs, log = ReplicaLogs(), ReplicaLog(broker_epoch=1, leader_epoch=1, last_epoch=0, log_end_offset=20)
    for number in range(3):
        logs.note((uuid.UUID(int=number), 0), 1, log)
        logs.prune(all_lost.image)
    assert len(logs) == 3


def test_log_reports_of_unknown_or_foreign_partitions_are_ignored(all_lost):
    all_lost.create_by_hand("b", (2, 3))
    known = all_lost.topic("b").topic_id.bytes
    ends = [ReplicaLogEnd(topic_id=b"short"), ReplicaLogEnd(topic_id=bytes(16)), ReplicaLogEnd(topic_id=known)]
    ends += [ReplicaLogEnd(topic_id=known, partition=number) for number in (-1, 1)]
    epoch = all_lost.image.brokers[1].broker_epoch
    request = ReportReplicaLogsRequest(broker_id=1, broker_epoch=epoch, logs=ends)
    decision = handle_replica_logs(request, all_lost.image, all_lost.logs)
    assert (decision.records, decision.reply.error_code, len(all_lost.logs)) == ((), 0, 0)


def test_a_big_report_is_handled_in_parts(all_lost):
    ends = [ReplicaLogEnd(partition=number) for number in range(2 * CHANGES_PER_EVENT + 1)]
    parts = replica_logs_parts(ReportReplicaLogsRequest(broker_id=1, broker_epoch=7, logs=ends))
    assert [len(part.logs) for part in parts] == [CHANGES_PER_EVENT, CHANGES_PER_EVENT, 1]
    assert {(part.broker_id, part.broker_epoch) for part in parts} == {(1, 7)}
    assert [end for part in parts for end in part.logs] == ends
    assert len(replica_logs_parts(ReportReplicaLogsRequest(broker_id=1))) == 1
