"""Tests consumer groups against real services: rebalances, lost members, static members, fencing of late commits."""

from __future__ import annotations

import threading
import time

import pytest

from klamm import Admin, Consumer, NewTopic, OffsetAndMetadata, TopicPartition
from klamm.errors import CommitFailedError, FencedInstanceIdError, NonEmptyGroupError, WakeupError
from tests.support.group_workers import (
    FAST,
    MORTAL_MS,
    PARTITION_COUNT,
    Ownership,
    Worker,
    assigned,
    produce,
    wait_for_shares,
    workers,
)
from tests.support.klamm_process import running_cluster
from tests.support.reading import read_to_end
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory):
    settings = {"group.min.session.timeout.ms": "500"}
    with running_cluster(tmp_path_factory.mktemp("cluster"), settings) as cluster:
        yield cluster.bootstrap


@pytest.fixture(scope="module")
def admin(bootstrap):
    with Admin(bootstrap_servers=bootstrap) as admin:
        yield admin


@pytest.fixture
def topic(admin, request) -> str:
    """Returns the name of a topic for this test only. The group has the same name."""
    name = request.node.name.replace("[", "-").replace("]", "")
    admin.create_topics([NewTopic(name, partition_count=PARTITION_COUNT)])
    return name


def poll_on(consumer: Consumer) -> None:
    """Polls until a poll raises an error."""
    while True:
        consumer.poll(timeout_ms=20_000)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_every_partition_has_one_owner_while_members_join_and_leave(bootstrap, topic, strategy):
    produce(bootstrap, topic, 3_000)
    ownership = Ownership()

    def join(name: str) -> Worker:
        return Worker(bootstrap, topic, ownership, name, partition_assignment_strategy=strategy)

    team = [join("a")]
    wait_for_shares(ownership, 6)
    team.append(join("b"))
    wait_for_shares(ownership, 3, 3)
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


def test_a_cooperative_rebalance_revokes_only_the_partitions_that_move(bootstrap, topic):
    ownership = Ownership()
    config = {"partition_assignment_strategy": "cooperative-sticky"}
    first = Worker(bootstrap, topic, ownership, "first", **config)
    wait_for_shares(ownership, 6)
    second = Worker(bootstrap, topic, ownership, "second", **config)
    with workers(first, second):
        wait_for_shares(ownership, 3, 3)
        assert sum(map(len, first.revoked)) == 3, "only what moved was revoked"
        assert second.revoked == []


def test_the_partitions_of_a_killed_member_go_to_the_others(bootstrap, topic):
    ownership = Ownership()
    victim = Worker(bootstrap, topic, ownership, "victim", session_timeout_ms=MORTAL_MS)
    survivor = Worker(bootstrap, topic, ownership, "survivor")
    with workers(survivor):
        wait_for_shares(ownership, 3, 3)
        victim.die()
        wait_for_shares(ownership, 6)
        assert ownership.conflicts == []


def test_a_commit_after_the_group_moved_on_fails_and_the_partitions_are_lost(bootstrap, topic):
    produce(bootstrap, topic, 60)
    config = {**FAST, "group_id": topic, "max_poll_interval_ms": MORTAL_MS, "enable_auto_commit": False}
    lost = []

    class Listener:
        def on_partitions_lost(self, partitions) -> None:
            lost.append(partitions)

    with Consumer(bootstrap_servers=bootstrap, **config) as slow:
        slow.subscribe([topic], listener=Listener())
        everything = assigned(slow)
        slow.commit({TopicPartition(topic, 0): 1})
        ownership = Ownership()
        other = Worker(bootstrap, topic, ownership, "other")
        with workers(other):
            wait_for_shares(ownership, 6)  # the slow member does not poll, so the group removes it after MORTAL_MS
            with pytest.raises(CommitFailedError, match=r"max\.poll\.interval\.ms"):
                slow.commit({TopicPartition(topic, 0): 5})
            slow.poll(timeout_ms=0)
            assert lost == [everything]
            assert slow.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)].offset != 5
            wait_until(lambda: bool(slow.poll(timeout_ms=50)) or bool(slow.assignment()), lambda: "did not rejoin")


def test_a_static_member_rejoins_without_a_rebalance(bootstrap, topic, admin):
    ownership = Ownership()
    config = {"session_timeout_ms": 20_000, "max_poll_interval_ms": 20_000}
    other = Worker(bootstrap, topic, ownership, "other", group_instance_id="instance-b", **config)
    static = Worker(bootstrap, topic, ownership, "static", group_instance_id="instance-a", **config)
    with workers(other):
        wait_for_shares(ownership, 3, 3)
        before = {tp for tp, owner in ownership.owners.items() if owner == "static"}
        generation_id = admin.describe_groups([topic])[topic].generation_id
        revoked = len(other.revoked)
        static.close()
        members = admin.describe_groups([topic])[topic].members
        assert {member.group_instance_id for member in members} == {"instance-a", "instance-b"}
        back = Worker(bootstrap, topic, ownership, "back", group_instance_id="instance-a", **config)
        wait_for_shares(ownership, 3, 3)
        assert {tp for tp, owner in ownership.owners.items() if owner == "back"} == before
        assert admin.describe_groups([topic])[topic].generation_id == generation_id
        assert len(other.revoked) == revoked
        back.close(leave=True)
        wait_for_shares(ownership, 6)


def test_a_second_process_with_the_same_instance_id_fences_the_first(bootstrap, topic):
    config = {**FAST, "group_id": topic, "group_instance_id": "one"}
    with Consumer(bootstrap_servers=bootstrap, **config) as first:
        first.subscribe([topic])
        assigned(first)
        with Consumer(bootstrap_servers=bootstrap, **config) as second:
            second.subscribe([topic])
            assigned(second)
            for _ in range(2):
                with pytest.raises(FencedInstanceIdError):
                    poll_on(first)


def test_a_member_that_does_not_poll_for_a_session_timeout_stays_in_the_group(bootstrap, topic, admin):
    config = {**FAST, "group_id": topic, "session_timeout_ms": MORTAL_MS}
    with Consumer(bootstrap_servers=bootstrap, **config) as consumer:
        consumer.subscribe([topic])
        assigned(consumer)
        generation_id = admin.describe_groups([topic])[topic].generation_id
        time.sleep(1.5 * MORTAL_MS / 1000)
        consumer.poll(timeout_ms=0)
        described = admin.describe_groups([topic])[topic]
        assert (described.state, described.generation_id) == ("Stable", generation_id)


def test_a_rebalance_listener_may_seek_and_commit_with_its_consumer(bootstrap, topic):
    produce(bootstrap, topic, 60)

    class Seeker:
        positions: dict[TopicPartition, int]

        def on_partitions_assigned(self, partitions) -> None:
            for tp in partitions:
                consumer.seek(tp, 7)
            self.positions = {tp: consumer.position(tp) for tp in partitions}
            self.thread = threading.current_thread()

        def on_partitions_revoked(self, partitions) -> None:
            consumer.commit({tp: OffsetAndMetadata(9, "from the listener") for tp in partitions})

    seeker = Seeker()
    with Consumer(bootstrap_servers=bootstrap, **FAST, group_id=topic, enable_auto_commit=False) as consumer:
        consumer.subscribe([topic], listener=seeker)
        everything = assigned(consumer)
        assert seeker.positions == dict.fromkeys(everything, 7)
        assert seeker.thread is threading.current_thread()
        consumer.unsubscribe()
        assert consumer.assignment() == frozenset()
        committed = consumer.committed(everything)
    assert {each.metadata for each in committed.values()} == {"from the listener"}


def test_poll_raises_the_listeners_exception_and_the_member_stays_in_the_group(bootstrap, topic):
    class Broken:
        calls = 0

        def on_partitions_assigned(self, partitions) -> None:
            if not partitions:
                return  # The group may form before the broker knows the new topic.
            self.calls += 1
            raise ValueError("bug in the listener")

    broken = Broken()
    with Consumer(bootstrap_servers=bootstrap, **FAST, group_id=topic) as consumer:
        consumer.subscribe([topic], listener=broken)
        with pytest.raises(ValueError, match="bug in the listener"):
            assigned(consumer)
        assert len(assigned(consumer)) == PARTITION_COUNT
        assert broken.calls == 1


def test_a_pattern_follows_topics_and_partitions_as_they_appear(bootstrap, admin):
    admin.create_topics([NewTopic("pattern-one", partition_count=1), NewTopic("other-one", partition_count=1)])
    config = {**FAST, "group_id": "pattern", "metadata_max_age_ms": 300}
    with Consumer(bootstrap_servers=bootstrap, **config) as consumer:
        consumer.subscribe(pattern="pattern-.*")
        assert assigned(consumer) == {TopicPartition("pattern-one", 0)}
        admin.create_topics([NewTopic("pattern-two", partition_count=1)])
        wait_until(
            lambda: consumer.poll(timeout_ms=50) is not None and len(consumer.assignment()) == 2,
            consumer.assignment,
        )
        assert consumer.subscription() == {"pattern-one", "pattern-two"}
        admin.create_partitions({"pattern-two": 3})
        wait_until(
            lambda: consumer.poll(timeout_ms=50) is not None and len(consumer.assignment()) == 4,
            consumer.assignment,
        )


def test_a_topic_may_be_subscribed_to_before_it_exists(bootstrap, admin):
    config = {**FAST, "group_id": "early-bird", "allow_auto_create_topics": False}
    with Consumer(bootstrap_servers=bootstrap, **config) as consumer:
        consumer.subscribe(["not-yet"])
        for _ in range(3):
            assert consumer.poll(timeout_ms=50) == {}
        admin.create_topics([NewTopic("not-yet", partition_count=1)])
        assert assigned(consumer) == {TopicPartition("not-yet", 0)}


def test_a_changed_subscription_takes_effect_with_the_next_polls(bootstrap, admin, topic):
    second = f"{topic}-second"
    admin.create_topics([NewTopic(second, partition_count=2)])
    with Consumer(bootstrap_servers=bootstrap, **FAST, group_id=topic) as consumer:
        consumer.subscribe([topic])
        assert {tp.topic for tp in assigned(consumer)} == {topic}
        consumer.subscribe([second])
        wait_until(
            lambda: consumer.poll(timeout_ms=50) is not None and {tp.topic for tp in consumer.assignment()} == {second},
            consumer.assignment,
        )


def test_a_new_member_starts_at_the_committed_offsets(bootstrap, topic, admin):
    produce(bootstrap, topic, 600)
    tp = TopicPartition(topic, 0)
    admin.alter_group_offsets(topic, {tp: OffsetAndMetadata(90, "reset")})
    with Consumer(bootstrap_servers=bootstrap, **FAST, group_id=topic) as consumer:
        consumer.subscribe([topic])
        records = read_to_end(consumer, [TopicPartition(topic, number) for number in range(PARTITION_COUNT)])
        assert len(records) == 510
        assert min(record.offset for record in records if record.partition == 0) == 90
        assert consumer.position(tp) == 100
        with pytest.raises(NonEmptyGroupError):
            admin.alter_group_offsets(topic, {tp: 0})


def test_wakeup_ends_a_wait_for_the_group(bootstrap, topic):
    with Consumer(bootstrap_servers=bootstrap, **FAST, group_id=topic) as consumer:
        consumer.subscribe([topic])
        waker = threading.Timer(0.3, consumer.wakeup)
        waker.start()
        with pytest.raises(WakeupError):
            poll_on(consumer)
        waker.join()
        assert assigned(consumer)
