"""Tests Klamm's consumer with group.protocol=consumer (KIP-848) against real services."""

from __future__ import annotations

import re

import pytest

from klamm import Admin, Consumer, NewTopic, TopicPartition
from klamm.errors import (
    CommitFailedError,
    InvalidRegularExpressionError,
    NonEmptyGroupError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)
from tests.support.group_workers import MORTAL_MS, Ownership, Worker, assigned, produce, wait_for_shares, workers
from tests.support.klamm_process import running_cluster
from tests.support.waiting import wait_until

PARTITION_COUNT = 6
SETTINGS = {
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
}
CONSUMER = {"group_protocol": "consumer"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with running_cluster(tmp_path_factory.mktemp("cluster"), SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def bootstrap(cluster):
    return cluster.bootstrap


@pytest.fixture(scope="module")
def admin(bootstrap):
    with Admin(bootstrap_servers=bootstrap) as admin:
        yield admin


@pytest.fixture
def topic(admin, request) -> str:
    """Creates a topic for this test only. The group has the same name."""
    name = re.sub(r"[^a-z0-9_]", "-", request.node.name)
    admin.create_topics([NewTopic(name, partition_count=PARTITION_COUNT)])
    return name


@pytest.mark.parametrize("assignor", [None, "range"])
def test_every_partition_has_one_owner_while_members_join_and_leave(bootstrap, admin, topic, assignor):
    produce(bootstrap, topic, 3_000)
    ownership = Ownership()

    def join(name: str) -> Worker:
        return Worker(bootstrap, topic, ownership, name, group_remote_assignor=assignor, **CONSUMER)

    team = [join("a")]
    wait_for_shares(ownership, 6)
    team.append(join("b"))
    wait_for_shares(ownership, 3, 3)
    assert len(team[0].revoked) == 1, "only what moved was revoked"
    assert team[1].revoked == []
    team += [join("c"), join("d")]
    wait_for_shares(ownership, 1, 1, 2, 2)
    everybody = list(team)
    team.pop(0).close()
    wait_for_shares(ownership, 2, 2, 2)
    team.pop().close()
    wait_for_shares(ownership, 3, 3)
    wait_until(
        lambda: len({pair for worker in everybody for pair in worker.read}) == 3_000,
        lambda: sum(len(worker.read) for worker in everybody),
    )
    for worker in team:
        worker.close()
    assert ownership.conflicts == []
    assert len([pair for worker in everybody for pair in worker.read]) == 3_000, "commits kept rebalances exact"


def test_the_partitions_of_a_killed_member_go_to_the_others(bootstrap, topic):
    ownership = Ownership()
    victim = Worker(bootstrap, topic, ownership, "victim", **CONSUMER)
    survivor = Worker(bootstrap, topic, ownership, "survivor", **CONSUMER)
    with workers(survivor):
        wait_for_shares(ownership, 3, 3)
        victim.die()
        wait_for_shares(ownership, 6)
        assert ownership.conflicts == []


def test_a_member_that_does_not_poll_leaves_the_group_and_loses_its_partitions(bootstrap, topic):
    lost = []

    class Listener:
        def on_partitions_lost(self, partitions) -> None:
            lost.append(partitions)

    config = {**CONSUMER, "group_id": topic, "max_poll_interval_ms": MORTAL_MS, "enable_auto_commit": False}
    with Consumer(bootstrap_servers=bootstrap, **config) as slow:
        slow.subscribe([topic], listener=Listener())
        everything = assigned(slow)
        slow.commit({TopicPartition(topic, 0): 1})
        ownership = Ownership()
        other = Worker(bootstrap, topic, ownership, "other", **CONSUMER)
        with workers(other):
            wait_for_shares(ownership, 6)
            with pytest.raises(CommitFailedError, match=r"max\.poll\.interval\.ms"):
                slow.commit({TopicPartition(topic, 0): 5})
            slow.poll(timeout_ms=0)
            assert lost == [everything]
            wait_until(lambda: slow.poll(timeout_ms=50) == {} and len(slow.assignment()) == 3, slow.assignment)


def test_a_static_member_rejoins_with_the_partitions_it_had(bootstrap, topic):
    ownership = Ownership()
    other = Worker(bootstrap, topic, ownership, "other", group_instance_id="b", **CONSUMER)
    static = Worker(bootstrap, topic, ownership, "static", group_instance_id="a", **CONSUMER)
    with workers(other):
        wait_for_shares(ownership, 3, 3)
        before = {tp for tp, owner in ownership.owners.items() if owner == "static"}
        revoked = len(other.revoked)
        static.close()
        back = Worker(bootstrap, topic, ownership, "back", group_instance_id="a", **CONSUMER)
        wait_for_shares(ownership, 3, 3)
        assert {tp for tp, owner in ownership.owners.items() if owner == "back"} == before
        assert len(other.revoked) == revoked
        with Consumer(bootstrap_servers=bootstrap, group_id=topic, group_instance_id="a", **CONSUMER) as rival:
            rival.subscribe([topic])
            with pytest.raises(UnreleasedInstanceIdError):
                assigned(rival)
        back.close(leave=True)


def test_a_pattern_is_matched_by_the_coordinator_and_follows_topics_and_partitions(bootstrap, admin, topic):
    names = [f"{topic}.{number}" for number in range(3)]
    admin.create_topics([NewTopic(names[0], partition_count=1), NewTopic(names[1], partition_count=1)])
    # Otherwise a reader would create the deleted topic again.
    config = {**CONSUMER, "group_id": topic, "allow_auto_create_topics": False}
    with Consumer(bootstrap_servers=bootstrap, **config) as consumer:
        consumer.subscribe(pattern=rf"{topic}\.[0-9]")

        def reads(*wanted: tuple[str, int]) -> None:
            wait_until(
                lambda: consumer.poll(timeout_ms=50) == {} and consumer.assignment() == set(wanted),
                consumer.assignment,
            )

        reads((names[0], 0), (names[1], 0))
        admin.create_topics([NewTopic(names[2], partition_count=1)])
        reads((names[0], 0), (names[1], 0), (names[2], 0))
        admin.create_partitions({names[2]: 2})
        reads((names[0], 0), (names[1], 0), (names[2], 0), (names[2], 1))
        assert consumer.subscription() == set(names)
        admin.delete_topics(names[:2])
        reads((names[2], 0), (names[2], 1))


def test_poll_raises_the_error_with_which_the_coordinator_refuses_the_member(bootstrap, topic):
    with Consumer(bootstrap_servers=bootstrap, group_id=topic, group_remote_assignor="best", **CONSUMER) as consumer:
        consumer.subscribe([topic])
        with pytest.raises(UnsupportedAssignorError, match="uniform"):
            assigned(consumer)
    with Consumer(bootstrap_servers=bootstrap, group_id=topic, **CONSUMER) as consumer:
        consumer.subscribe(pattern="(?=look-ahead)")
        with pytest.raises(InvalidRegularExpressionError):
            assigned(consumer)


def test_the_admin_lists_and_describes_a_group_of_the_consumer_protocol(bootstrap, admin, topic):
    ownership = Ownership()
    worker = Worker(bootstrap, topic, ownership, "a", **CONSUMER)
    with workers(worker):
        wait_for_shares(ownership, 6)
        wait_until(
            lambda: admin.describe_groups([topic])[topic].state == "Stable", lambda: admin.describe_groups([topic])
        )
        described = admin.describe_groups([topic])[topic]
        assert (described.type, described.assignor) == ("consumer", "uniform")
        assert described.group_epoch == described.assignment_epoch > 0
        (member,) = described.members
        assert (member.client_id, member.topics, member.epoch) == ("a", (topic,), described.group_epoch)
        assert len(member.assignment) == 6
        assert topic in admin.list_groups(types=["consumer"], states=["stable"])
        assert topic not in admin.list_groups(types=["classic"])
        with pytest.raises(NonEmptyGroupError):
            admin.delete_groups([topic])
    admin.delete_groups([topic])
    assert topic not in admin.list_groups()


def test_no_member_loses_partitions_when_the_coordinator_restarts(cluster, bootstrap, topic):
    """The members notice only a few heartbeats without an answer."""
    ownership = Ownership()
    team = [Worker(bootstrap, topic, ownership, name, **CONSUMER) for name in ("a", "b")]
    with workers(*team):
        wait_for_shares(ownership, 3, 3)
        lost = [len(worker.lost) for worker in team]
        cluster.stop()
        cluster.start()
        produce(bootstrap, topic, 600)
        wait_until(
            lambda: len({pair for worker in team for pair in worker.read}) == 600,
            lambda: sum(len(worker.read) for worker in team),
        )
        assert ownership.conflicts == []
        assert [len(worker.lost) for worker in team] == lost
