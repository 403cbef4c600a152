"""Tests how a plan is shown."""

from __future__ import annotations

import json

from klamm.model import TopicPartition
from klamm_cli.balance.load import PartitionLoad
from klamm_cli.balance.measure import MeasuredCluster
from klamm_cli.balance.plan import BalancePlan
from klamm_cli.balance.screen import COLUMNS, document, headline, moves, rows

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
CLUSTER = MeasuredCluster(
    partitions={
        ONE: PartitionLoad(replicas=(1, 2), in_bytes=1024.0, out_bytes=2048.0, size_bytes=4096),
        TWO: PartitionLoad(replicas=(1, 2), in_bytes=1024.0, out_bytes=2048.0, size_bytes=4096),
    },
    racks={1: "dc1/a", 2: "", 3: ""},
    targets=frozenset({1, 2, 3}),
)
PLAN = BalancePlan(moves={ONE: (2, 1), TWO: (1, 3)}, copied_bytes=4096)


def test_a_plan_is_shown_with_its_copies_and_the_load_before_and_after() -> None:
    assert moves(CLUSTER, PLAN) == ["t-0: 1,2 -> 2,1", "t-1: 1,2 -> 1,3"]
    assert headline(CLUSTER, PLAN).startswith(
        "move 1 partition and change 1 preferred leader, which copies 4.0 KiB; the largest difference from the mean"
    )
    shown = [dict(zip(COLUMNS, row, strict=True)) for row in rows(CLUSTER, PLAN)]
    assert [(each["out_s"], each["out_s_after"], each["leaders"]) for each in shown] == [
        ("6.0 KiB", "3.0 KiB", 1),
        ("0 B", "3.0 KiB", 1),
        ("0 B", "0 B", 0),
    ]
    assert [(each["stored"], each["stored_after"]) for each in shown] == [
        ("8.0 KiB", "8.0 KiB"),
        ("8.0 KiB", "4.0 KiB"),
        ("0 B", "4.0 KiB"),
    ]


def test_the_document_is_json_and_has_the_plan() -> None:
    found = json.loads(json.dumps(document(CLUSTER, PLAN)))
    assert [(each["partition"], each["replicas"], each["new_replicas"]) for each in found["moves"]] == [
        (0, [1, 2], [2, 1]),
        (1, [1, 2], [1, 3]),
    ]
    assert found["copied_bytes"] == 4096
    assert found["brokers"][0]["before"]["out_bytes_per_second"] == 6144


def test_an_empty_plan_says_that_the_cluster_is_balanced() -> None:
    assert headline(CLUSTER, BalancePlan(moves={}, copied_bytes=0)).startswith("the cluster is balanced: no broker")
