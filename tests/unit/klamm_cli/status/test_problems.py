"""Tests which states are reported as problems and which are not."""

from __future__ import annotations

import dataclasses

import pytest

from klamm.admin.types import (
    DamagedSegment,
    DamageState,
    HangingTransaction,
    ProducerState,
    QuorumReplicaKind,
    ScrubDescription,
)
from klamm.model import TopicPartition
from klamm_cli.status import problems as checked
from klamm_cli.status.group_lag import GroupLag
from klamm_cli.status.problems import name_some, used_percent
from tests.support.status_world import controller, log_dir, partition, quorum, server, topic


def problems(facts):
    found = checked.problems(facts)
    assert all(each.advice for each in found)
    return [each.text for each in found]


def test_a_healthy_cluster_has_no_problems(facts):
    assert problems(facts()) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"cluster": {"controller_id": -1}},
            ["no controller is active: metadata cannot change, leaders cannot be elected"],
        ),
        (
            {"cluster": {"brokers": (server(1, fenced=True), server(2))}},
            ["broker 1 is fenced: its heartbeats do not come"],
        ),
        ({"cluster": {"brokers": (server(1), server(2, in_controlled_shutdown=True))}}, ["broker 2 is shutting down"]),
        (
            {"cluster": {"coordinators": (server(1, fenced=True),)}},
            ["coordinator 1 is fenced: its heartbeats do not come", "no coordinator is live"],
        ),
        ({"cluster": {"coordinators": ()}}, ["no coordinator is live"]),
        ({"quorum": quorum(controller(1), controller(2, silent_ms=61_000))}, ["controller 2 was last heard 61 s ago"]),
        (
            {"quorum": quorum(controller(1), controller(2, lag=5_000))},
            ["controller 2 is 5000 entries behind the leader of its quorum"],
        ),
        ({"log_dirs": {2: (log_dir("/a", online=False),)}}, ["broker 2: log directory /a is offline"]),
        ({"log_dirs": {2: (log_dir("/a", usable=50),)}}, ["broker 2: the disk of /a is 95 % full"]),
        ({"unknown": {"groups": "timed out"}}, ["groups: not known (timed out)"]),
    ],
)
def test_each_fault_of_a_cluster_is_a_problem(facts, changes, said):
    assert problems(facts(**changes)) == said


def test_silent_observers_and_other_servers_are_no_problem(facts):
    silent = quorum(
        controller(1, silent_ms=99_999),  # the leader itself
        controller(2, is_voter=False, silent_ms=99_999),
        controller(3, kind=QuorumReplicaKind.BROKER, is_voter=False, silent_ms=99_999),
    )
    assert problems(facts(quorum=silent)) == []


def test_faulty_partitions_are_reported_with_the_effect_on_clients(facts):
    topics = {
        "orders": topic("orders", partition(0, leader=-1, isr=(1,)), partition(1, isr=(1, 2)), partition(2)),
    }
    assert problems(facts(topics=topics)) == [
        "1 of 3 partitions without a leader: neither read nor written: orders-0",
        "1 of 3 partitions below min.insync.replicas: refuse records with acks=all: orders-0",
        "2 of 3 partitions under-replicated: orders-0, orders-1",
    ]


def test_a_resigned_broker_is_reported_with_the_partitions_that_it_still_leads(facts):
    topics = {
        "orders": topic(
            "orders",
            partition(0, isr=(1, 2), resigned_replicas=(3,)),
            partition(1, leader=3, isr=(3, 1), resigned_replicas=(3,)),
        )
    }
    assert problems(facts(topics=topics)) == [
        "1 of 2 partitions led by a broker that has resigned: refuse records: orders-1",
        "2 of 2 partitions under-replicated: orders-0, orders-1",
        "broker 3: 2 replicas resigned, and will not lead while others can",
    ]


def test_a_partition_with_fewer_replicas_than_min_isr_is_below_the_minimum(facts):
    topics = {"orders": topic("orders", partition(0, replicas=(1,), isr=(1,)))}
    (said,) = problems(facts(topics=topics))
    assert "below min.insync.replicas" in said


def test_internal_topics_are_named_last(facts):
    topics = {
        "__a": topic("__a", partition(0, isr=(1, 2)), internal=True),
        "z": topic("z", partition(0, isr=(1, 2))),
    }
    assert problems(facts(topics=topics))[0].endswith("under-replicated: z-0, __a-0")


def test_a_list_of_partitions_is_bounded():
    tps = [TopicPartition("t", number) for number in range(12)]
    assert name_some(tps[:2]) == "t-0, t-1"
    assert name_some(tps) == "t-0, t-1, t-2, t-3, t-4, t-5, t-6, t-7, t-8, t-9 and 2 more"


def test_a_hanging_transaction_is_a_problem_and_an_open_one_is_not(facts):
    producer = ProducerState(
        producer_id=7,
        producer_epoch=0,
        last_sequence=1,
        last_timestamp_ms=1,
        coordinator_epoch=0,
        current_txn_start_offset=3,
    )
    (said,) = problems(facts(hanging=(HangingTransaction(tp=TopicPartition("orders", 1), producer=producer),)))
    assert said.startswith("1 transaction hanging")
    assert "orders-1" in said


def group(name, **lost):
    by_partition = {TopicPartition(topic, 0): count for topic, count in lost.items()}
    return GroupLag(group_id=name, type="classic", state="Empty", lag=7, partitions=2, lost=by_partition)


MINUTE, HOUR = 60_000, 3_600_000


def test_unread_records_that_retention_deletes_within_two_hours_are_a_problem(facts):
    doomed = dataclasses.replace(group("billing"), doomed=(TopicPartition("orders", 0),), deletion_ms=20 * MINUTE)
    said = "group billing has 7 unread records and no members; retention deletes the first ones in 20 min: orders-0"
    assert problems(facts(groups=(doomed,))) == [said]
    later = dataclasses.replace(doomed, deletion_ms=2 * HOUR)
    assert problems(facts(groups=(later,))) == []
    sooner = dataclasses.replace(doomed, group_id="sooner", state="Stable", deletion_ms=MINUTE)
    found = problems(facts(groups=(doomed, sooner)))
    assert found[0].startswith("group sooner has 7 unread records; retention deletes the first ones in 60 s")
    assert found[1] == said


@pytest.mark.parametrize(
    ("state", "unchanged_ms", "is_problem"),
    [("Empty", 10 * MINUTE, True), ("Empty", 10 * MINUTE - 1, False), ("Empty", None, False), ("Stable", HOUR, False)],
)
def test_a_group_without_members_whose_lag_stands_is_a_problem(facts, state, unchanged_ms, is_problem):
    left = dataclasses.replace(group("billing"), state=state, unchanged_ms=unchanged_ms)
    said = "group billing has no members and 7 unread records, and has committed nothing for 10 min"
    assert problems(facts(groups=(left,))) == ([said] if is_problem else [])


def test_a_group_that_lost_records_is_a_problem_and_one_that_is_behind_is_not(facts):
    assert problems(facts(groups=(group("behind"),))) == []
    assert problems(facts(groups=(group("billing", orders=5_025, clicks=1), group("behind")))) == [
        "group billing lost 5026 records, deleted before the group read them: orders-0 (5025), clicks-0 (1)"
    ]


def test_many_groups_that_lost_records_are_reported_in_a_bounded_list(facts):
    found = problems(facts(groups=[group(f"g{number}", orders=1) for number in range(12)]))
    assert len(found) == 11
    assert found[0] == "group g0 lost 1 record, deleted before the group read them: orders-0 (1)"
    assert found[-1] == "2 more groups lost records, deleted before the groups read them: g10, g11"


@pytest.mark.parametrize(("total", "usable", "percent"), [(0, 0, None), (100, 100, 0), (100, 0, 100), (3, 1, 67)])
def test_the_used_share_of_a_disk_is_computed_in_percent(total, usable, percent):
    assert used_percent(total, usable) == percent


def test_damage_that_is_not_repaired_is_a_problem_and_what_was_repaired_is_not(facts):
    def replica(state):
        damage = DamagedSegment(
            path="/data/orders-0/0.log", found_ms=1, state=state, text="no other replica is in sync", lines=("x",)
        )
        return ScrubDescription(
            tp=TopicPartition("orders", 0),
            asked=False,
            running=False,
            next_offset=-1,
            end_offset=-1,
            finished_ms=1,
            damages=(damage,),
        )

    (said,) = problems(facts(damaged={1: (replica(DamageState.UNREPAIRED),), 2: (replica(DamageState.REPAIRED),)}))
    assert said.startswith("broker 1: 1 damaged segment not repaired, of orders-0 (no other replica is in sync)")
