"""Tests rates from two samples."""

from __future__ import annotations

import dataclasses
import json

import pytest

from klamm.model import TopicPartition
from klamm_cli.top.rates import frame
from klamm_cli.top.sample import Counters, GroupPositions, Sample

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
MIB = 1024 * 1024

BEFORE = Sample(
    at_s=100.0,
    ends={A0: 10, A1: 20, B0: 5},
    leaders={A0: 1, A1: 2, B0: 1},
    log_bytes={A0: MIB, A1: 2 * MIB, B0: MIB},
    groups={"g": GroupPositions(state="Stable", committed={A0: 0, A1: 20}, lag=10)},
)
AFTER = Sample(
    at_s=102.0,
    ends={A0: 30, A1: 24, B0: 5},
    leaders={A0: 1, A1: 2, B0: 1},
    log_bytes={A0: 3 * MIB, A1: 3 * MIB, B0: MIB},
    groups={"g": GroupPositions(state="Stable", committed={A0: 26, A1: 22}, lag=6, behind_ms=700)},
)


def rates(before=None, after=None, limit=10):
    return frame(
        dataclasses.replace(BEFORE, **(before or {})), dataclasses.replace(AFTER, **(after or {})), limit=limit
    )


def test_topics_are_sorted_by_record_rate_then_name():
    found = rates()
    assert found.topics == [
        {"topic": "a", "partitions": 2, "records_s": 12.0, "in_mib_s": 1.5, "out_mib_s": None, "committed_s": 14.0},
        {"topic": "b", "partitions": 1, "records_s": 0.0, "in_mib_s": 0.0, "out_mib_s": None, "committed_s": 0},
    ]
    assert (found.records_s, found.interval_s) == (12.0, 2.0)


def test_the_rates_of_a_broker_are_those_of_the_partitions_that_it_leads():
    assert rates().brokers == [
        {"broker": 1, "leaders": 2, "records_s": 10.0, "in_mib_s": 1.0},
        {"broker": 2, "leaders": 1, "records_s": 2.0, "in_mib_s": 0.5},
    ]


def test_a_group_has_its_lag_its_commit_rate_and_the_change_of_its_lag():
    group = {"group": "g", "state": "Stable", "lag": 6, "behind_ms": 700}
    assert rates().groups == [{**group, "committed_s": 14.0, "lag_s": None}]
    assert rates(after={"at_s": 120.0}).groups == [{**group, "committed_s": 1.4, "lag_s": -0.2}]


def test_rows_are_limited_to_the_busiest():
    assert [row["topic"] for row in rates(limit=1).topics] == ["a"]


def test_a_new_or_decreased_counter_has_no_rate_in_one_sample():
    found = rates(before={"ends": {A1: 99}, "log_bytes": {A0: 9 * MIB}, "groups": {}})
    assert found.topics[0] == {
        "topic": "a",
        "partitions": 2,
        "records_s": 0.0,
        "in_mib_s": None,
        "out_mib_s": None,
        "committed_s": 0.0,
    }
    assert found.groups[0]["lag_s"] is None


def test_a_partition_whose_leader_changed_has_no_byte_rate():
    assert rates(after={"leaders": {A0: 2, A1: 1, B0: 1}}).topics[0]["in_mib_s"] is None


def test_byte_rates_from_metrics_are_preferred_to_the_growth_of_logs():
    before = {"x:1": Counters(bytes_in={"a": 0.0}, bytes_out={"a": 4.0 * MIB, "b": 0.0}, requests=10)}
    after = {
        "x:1": Counters(bytes_in={"a": 8.0 * MIB}, bytes_out={"a": 6.0 * MIB, "b": 2.0 * MIB}, requests=110),
        "y:1": Counters(bytes_in={"a": 100.0}),
    }
    found = rates({"metrics": before}, {"metrics": after})
    assert [(row["in_mib_s"], row["out_mib_s"]) for row in found.topics] == [(4.0, 1.0), (0.0, 1.0)]
    assert found.endpoints == [
        {"endpoint": "x:1", "requests_s": 50.0, "in_mib_s": 4.0, "out_mib_s": 2.0},
        {"endpoint": "y:1", "requests_s": None, "in_mib_s": None, "out_mib_s": None},
    ]


def test_a_restarted_broker_has_no_rate_in_one_sample():
    found = rates({"metrics": {"x:1": Counters(requests=9)}}, {"metrics": {"x:1": Counters(requests=3)}})
    assert found.endpoints[0]["requests_s"] is None


def test_two_samples_at_the_same_time_have_a_rate_of_zero():
    assert rates(after={"at_s": 100.0, "ends": BEFORE.ends}).records_s == 0


@pytest.mark.parametrize("left_out", ["", "3 of 9 topics are not watched"])
def test_the_document_is_json(left_out):
    document = json.loads(json.dumps(rates(after={"left_out": left_out}).document()))
    assert document["left_out"] == left_out
    assert document["topics"][0]["topic"] == "a"
