"""Tests the tables, lines and document of a cluster's status."""

from __future__ import annotations

import json

from klamm.model import TopicPartition
from klamm_cli.status.facts import OpenTransaction
from klamm_cli.status.group_lag import GroupLag
from klamm_cli.status.problems import Problem
from klamm_cli.status.screen import document, headline, summary, tables
from tests.support.status_world import partition, server, topic


def rows(facts, title):
    (found,) = [
        [dict(zip(columns, row, strict=True)) for row in rows] for name, columns, rows in tables(facts) if name == title
    ]
    return found


def test_brokers_are_shown_with_their_leaders_and_out_of_sync_replicas(facts):
    described = facts(
        cluster={"brokers": (server(1), server(2, fenced=True), server(3, in_controlled_shutdown=True, rack="b"))},
        topics={"orders": topic("orders", partition(0, isr=(1, 3)), partition(1, leader=3, isr=(1, 2, 3)))},
    )
    shown = [(row["state"], row["leaders"], row["replicas"], row["out_of_sync"]) for row in rows(described, "brokers")]
    assert shown == [("live", 1, 2, 0), ("fenced", 0, 2, 1), ("shutting down", 1, 2, 0)]


def test_controllers_are_shown_even_if_the_quorum_is_unknown(facts):
    found = rows(facts(quorum=None), "controllers")
    assert [(each["id"], each["role"], each["lag"]) for each in found] == [(1, "leader", None), (2, None, None)]


def test_only_the_groups_with_the_most_lag_are_on_the_screen(facts):
    groups = [GroupLag(group_id=f"g{n}", type="classic", state="Stable", lag=n, partitions=1) for n in range(40, 0, -1)]
    described = facts(groups=groups, groups_left_out=3)
    assert [row["lag"] for row in rows(described, "groups")] == list(range(40, 30, -1))
    assert "groups 43, behind 40, 3 not looked at" in summary(described)


def test_unknown_facts_are_not_shown(facts):
    described = facts(topics=None, groups=None, open_transactions=None, hanging=None)
    assert summary(described) == []
    assert document(described, [])["topics"] is None
    assert [row["leaders"] for row in rows(described, "brokers")] == [None, None, None]
    assert summary(facts(hanging=None))[1] == "transactions open 0, hanging not looked for"


def test_open_transactions_are_counted_with_the_age_of_the_oldest(facts):
    one = OpenTransaction(transactional_id="t", state="Ongoing", open_ms=12_340, timeout_ms=60_000, is_prepared=False)
    assert "transactions open 1 (oldest 12.3 s), hanging 0" in summary(facts(open_transactions=(one,)))


def test_the_document_is_json_and_has_every_part(facts):
    found = json.loads(json.dumps(document(facts(groups=()), [Problem("broken", "mend it")])))
    assert found["problems"] == ["broken"]
    assert found["healthy"] is False
    assert found["partitions"] == {
        "total": 2,
        "under_replicated": [],
        "under_min_isr": [],
        "led_by_resigned": [],
        "offline": [],
    }
    assert found["groups"] == []
    assert len(found["brokers"]) == 3


def test_the_headline_counts_the_problems(facts):
    assert headline(facts(), []) == "cluster the-id: healthy"
    assert headline(facts(), [Problem("a", "")]) == "cluster the-id: degraded, 1 problem"
    assert headline(facts(), [Problem("a", "")] * 2) == "cluster the-id: degraded, 2 problems"


def test_groups_are_shown_with_their_lag_and_what_they_lost(facts):
    lost = {TopicPartition("t", 0): 5_025}
    lag = GroupLag(group_id="g", type="classic", state="Empty", lag=2_976, partitions=2, behind_ms=61_500, lost=lost)
    shown = facts(groups=(lag,))
    row = {
        "group": "g",
        "type": "classic",
        "state": "Empty",
        "partitions": 2,
        "lag": 2_976,
        "behind_s": 61,
        "lost": 5_025,
    }
    assert rows(shown, "groups") == [row]
    assert "groups 1, behind 1, with records lost 1" in summary(shown)


def test_brokers_of_one_host_take_one_line_and_stay_apart_in_the_document(facts):
    brokers = (
        *(server(100 + number, host="h1", rack="dc1/h1", fenced=number == 3) for number in range(4)),
        server(200, host="h2", rack="dc1/h2"),
        server(201, host="h2", rack="dc1/h2"),
    )
    orders = topic("orders", partition(0, leader=101, replicas=(101, 200), isr=(101,)))
    described = facts(cluster={"brokers": brokers}, topics={"orders": orders})
    assert rows(described, "brokers") == [
        {
            "ids": "100-103",
            "host": "h1",
            "rack": "dc1/h1",
            "state": "1 fenced, 3 live",
            "leaders": 1,
            "replicas": 1,
            "out_of_sync": 0,
        },
        {
            "ids": "200-201",
            "host": "h2",
            "rack": "dc1/h2",
            "state": "live",
            "leaders": 0,
            "replicas": 1,
            "out_of_sync": 1,
        },
    ]
    found = document(described, [])
    assert len(found["brokers"]) == 6
    assert [each["ids"] for each in found["hosts"]] == ["100-103", "200-201"]
