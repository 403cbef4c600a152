"""Tests that the members of a group change between the classic and the consumer protocol one after the other (KIP-848).
They keep reading, from a cluster of real services."""

from __future__ import annotations

import re
import threading

import pytest

from klamm import Admin, NewTopic, Producer
from tests.support.group_workers import PARTITION_COUNT, Ownership, Worker, wait_for_shares, workers
from tests.support.klamm_process import running_cluster
from tests.support.waiting import wait_until

SETTINGS = {
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "500",
}
EAGER = {"group_protocol": "classic", "partition_assignment_strategy": ["range"]}
COOPERATIVE = {"group_protocol": "classic", "partition_assignment_strategy": ["cooperative-sticky"]}
CONSUMER = {"group_protocol": "consumer"}
classics = pytest.mark.parametrize("classic", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with running_cluster(tmp_path_factory.mktemp("cluster"), SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster, request) -> str:
    """Creates a topic for this test only. The group has the same name."""
    name = re.sub(r"[^a-z0-9_]", "-", request.node.name)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partition_count=PARTITION_COUNT)])
    return name


class Stream:
    """Produces records to a topic until it is closed, in a thread of its own."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.sent = 0
        self._bootstrap, self._topic = bootstrap, topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _work(self) -> None:
        with Producer(bootstrap_servers=self._bootstrap) as producer:
            while not self._stopping.wait(0.005):
                producer.send(self._topic, b"%d" % self.sent, partition=self.sent % PARTITION_COUNT)
                self.sent += 1


def group_type(admin: Admin, group: str) -> str:
    return admin.describe_groups([group])[group].type


@classics
def test_members_change_their_protocol_and_back_without_losing_a_record(cluster, topic, classic):
    ownership = Ownership()
    stream = Stream(cluster.bootstrap, topic)
    everybody: list[Worker] = []

    def join(name: str, config) -> Worker:
        worker = Worker(cluster.bootstrap, topic, ownership, name, auto_commit_interval_ms=100, **config)
        everybody.append(worker)
        return worker

    try:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            team = [join("a", classic), join("b", classic)]
            wait_for_shares(ownership, 3, 3)
            for number, config in enumerate((CONSUMER, CONSUMER, classic, classic)):
                team.pop(0).close()
                wait_for_shares(ownership, 6)
                team.append(join(f"c{number}", config))
                wait_for_shares(ownership, 3, 3)
                wait_until(lambda: team[-1].read, lambda: f"{team[-1].name} reads nothing")
                if number in (1, 3):
                    assert group_type(admin, topic) == config["group_protocol"]
    finally:
        stream.close()
    wait_until(
        lambda: len({pair for worker in everybody for pair in worker.read}) == stream.sent,
        lambda: (stream.sent, [len(worker.read) for worker in everybody]),
    )
    with workers(*team):
        assert ownership.conflicts == []


def test_the_last_consumer_member_dies_and_the_classic_members_take_over(cluster, topic):
    ownership = Ownership()
    old = Worker(cluster.bootstrap, topic, ownership, "old", **EAGER)
    wait_for_shares(ownership, 6)
    new = Worker(cluster.bootstrap, topic, ownership, "new", **CONSUMER)
    wait_for_shares(ownership, 3, 3)
    with workers(old), Admin(bootstrap_servers=cluster.bootstrap) as admin:
        new.die()
        wait_for_shares(ownership, 6)
        assert group_type(admin, topic) == "classic"


def test_a_static_member_changes_its_protocol_under_its_name(cluster, topic):
    ownership = Ownership()
    old = Worker(cluster.bootstrap, topic, ownership, "old", group_instance_id="i", **EAGER)
    other = Worker(cluster.bootstrap, topic, ownership, "other", group_instance_id="j", **EAGER)
    wait_for_shares(ownership, 3, 3)
    old.close()
    new = Worker(cluster.bootstrap, topic, ownership, "new", group_instance_id="i", **CONSUMER)
    wait_for_shares(ownership, 3, 3)
    with workers(new, other), Admin(bootstrap_servers=cluster.bootstrap) as admin:
        assert {member.group_instance_id: member.type for member in admin.describe_groups([topic])[topic].members} == {
            "i": "consumer",
            "j": "classic",
        }
        assert ownership.conflicts == []


@classics
@pytest.mark.parametrize("direction", ["upgrade", "downgrade"])
def test_a_coordinator_that_is_killed_continues_the_change(cluster, topic, classic, direction):
    ownership = Ownership()
    old = Worker(cluster.bootstrap, topic, ownership, "old", **classic)
    wait_for_shares(ownership, 6)
    new = Worker(cluster.bootstrap, topic, ownership, "new", **CONSUMER)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        if direction == "upgrade":
            wait_until(lambda: group_type(admin, topic) == "consumer", lambda: "no consumer group")
        else:
            wait_for_shares(ownership, 3, 3)
            new.close()
    cluster.kill()
    cluster.start()
    if direction == "upgrade":
        with workers(old, new):
            wait_for_shares(ownership, 3, 3)
    else:
        with workers(old):
            wait_for_shares(ownership, 6)
