"""Tests that `klamm cluster balance` spreads the load of a cluster, can be stopped, and continues."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from klamm import Admin, Consumer, NewTopic, Producer, TopicPartition
from klamm.admin import ConfigResource, ConfigResourceType
from klamm.admin.replication_throttle import FOLLOWERS
from tests.support.broker_cluster import BrokerCluster, broker_cluster, describe
from tests.support.cli_runner import KlammCommand
from tests.support.waiting import patience, wait_until

PARTITIONS = 12
VALUE = b"v" * 50_000
PER_PARTITION = 40


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[BrokerCluster]:
    with broker_cluster(tmp_path) as running:
        yield running


def make_skewed(cluster: BrokerCluster, admin: Admin) -> None:
    """Creates a topic whose partitions are all led by broker 1 and followed by broker 2, with 2 MB in each."""
    admin.create_topics([NewTopic("t", assignments=dict.fromkeys(range(PARTITIONS), (1, 2)))])
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for number in range(PARTITIONS * PER_PARTITION):
            producer.send("t", VALUE, partition=number % PARTITIONS)
        producer.flush(patience())


def hosted(admin: Admin) -> Counter[int]:
    return Counter(
        broker_id for partition in describe(admin, "t").partitions for broker_id in partition.target_replicas
    )


def count_records(cluster: BrokerCluster) -> int:
    tps = [TopicPartition("t", number) for number in range(PARTITIONS)]
    with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        consumer.assign(tps)
        consumer.seek_to_beginning(*tps)
        found = 0
        while any(consumer.position(tp) < PER_PARTITION for tp in tps):
            found += sum(map(len, consumer.poll(timeout_ms=500).values()))
        return found


def test_a_skewed_cluster_is_balanced_and_a_second_plan_is_empty(cluster: BrokerCluster) -> None:
    klamm = KlammCommand(cluster.bootstrap)
    with cluster.admin() as admin:
        make_skewed(cluster, admin)
        balance = ("cluster", "balance", "--measure", 0.5)
        plan = klamm.ok(*balance, "--dry-run", "--json").document
        assert hosted(admin) == {1: PARTITIONS, 2: PARTITIONS}, "a dry run moves nothing"
        assert plan["validate_only"]
        # A third of all replicas belongs to broker 3, with 10 % of tolerance.
        assert 0.8 * 8 * 2_000_000 < plan["copied_bytes"] < 1.2 * 8 * 2_000_000

        refused = klamm(*balance)
        assert (refused.status, hosted(admin)[3]) == (2, 0)
        assert "add --yes to begin" in refused.err

        moved = klamm.ok(*balance, "--yes")
        assert "moved" in moved.err
        after = hosted(admin)
        assert all(7 <= after[broker_id] <= 9 for broker_id in (1, 2, 3))
        leaders = Counter(partition.leader for partition in describe(admin, "t").partitions)
        assert all(3 <= leaders[broker_id] <= 5 for broker_id in (1, 2, 3))
        assert all(set(partition.isr) == set(partition.replicas) for partition in describe(admin, "t").partitions)
        assert not throttled(admin)
        assert klamm.ok(*balance, "--dry-run", "--json").document["moves"] == []
    assert count_records(cluster) == PARTITIONS * PER_PARTITION


def test_a_stopped_balance_ends_with_its_moves_cancelled_and_another_one_continues(cluster: BrokerCluster) -> None:
    klamm = KlammCommand(cluster.bootstrap)
    with cluster.admin() as admin:
        make_skewed(cluster, admin)
        # The throttle is so low that no copy ends.
        command = [sys.executable, "-m", "klamm", "cluster", "balance", "--yes", "--measure", "0.5", "--throttle", "1"]
        running = subprocess.Popen(
            [*command, "--bootstrap", cluster.bootstrap], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        try:
            wait_until(lambda: len(admin.list_partition_reassignments()) > 1)
            assert klamm.ok("cluster", "balance", "--stop", "--dry-run").out.startswith("would cancel ")
            assert throttled(admin)
            assert klamm.ok("cluster", "balance", "--stop").out.startswith("cancelled ")
            _, complaint = running.communicate(timeout=patience())
        finally:
            running.kill()
            running.wait()
        assert running.returncode == 1
        assert "stopped: partition t-" in complaint
        assert "run klamm cluster balance again" in complaint
        assert not admin.list_partition_reassignments()
        assert not throttled(admin)
        klamm.ok("cluster", "balance", "--yes", "--measure", 0.5)
        after = hosted(admin)
        assert all(7 <= after[broker_id] <= 9 for broker_id in (1, 2, 3))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--stop", "--watch"), "--stop excludes --watch and --yes"),
        (("--watch", "--dry-run"), "--watch and --dry-run exclude each other"),
    ],
)
def test_options_that_contradict_each_other_are_refused(arguments: tuple[str, ...], complaint: str) -> None:
    refused = KlammCommand("localhost:1")("cluster", "balance", *arguments)
    assert (refused.status, complaint in refused.err) == (2, True)


def throttled(admin: Admin) -> str:
    topic = ConfigResource(ConfigResourceType.TOPIC, "t")
    return admin.describe_configs([topic])[topic][FOLLOWERS].value or ""
