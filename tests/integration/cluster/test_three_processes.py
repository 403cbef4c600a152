"""Tests the services as a deployment runs them: three processes, three ports, three properties files.

Each service may be stopped or killed while the others and the clients continue. The clients get no notice. Their
requests are completed when the service has restarted on its old port.
"""

from __future__ import annotations

import contextlib
import pathlib
import signal
from collections.abc import Callable, Iterator

import pytest

from klamm import Admin, Consumer, NewTopic, Producer, TopicPartition
from klamm.consumer.config import Records
from tests.support.deployed_services import Deployment
from tests.support.waiting import patience, wait_until

TOPIC = "orders"
GROUP = "billing"
PARTITIONS = frozenset(TopicPartition(TOPIC, number) for number in range(2))


class Rebalances:
    """A listener that counts its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.calls.append("assigned")

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.calls.append("revoked")

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.calls.append("lost")


@pytest.fixture
def deployment(tmp_path: pathlib.Path) -> Iterator[Deployment]:
    deployed = Deployment(tmp_path)
    try:
        # This order needs the longest waits, because each service waits for those after it.
        for service in (deployed.coordinator, deployed.broker, deployed.controller):
            service.start()
        with Admin(bootstrap_servers=deployed.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, partition_count=len(PARTITIONS))])
        yield deployed
    finally:
        for service in deployed.services.values():
            service.abandon()


def member(deployment: Deployment, listener: Rebalances) -> Consumer:
    consumer = Consumer(
        bootstrap_servers=deployment.bootstrap,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
    )
    consumer.subscribe([TOPIC], listener=listener)
    return consumer


def send(producer: Producer, values: list[bytes]) -> None:
    for number, value in enumerate(values):
        producer.send(TOPIC, value, partition=number % len(PARTITIONS))
    producer.flush()


def poll_until(consumers: list[Consumer], done: Callable[[list[Records]], bool]) -> list[bytes]:
    """Polls in turn until `done` is true for all polled records. Returns the sorted values of the records."""
    polled: list[Records] = []
    wait_until(
        lambda: done(polled),
        lambda: f"nothing more than {values_of(polled)}",
        between=lambda: polled.extend(consumer.poll(timeout_ms=100) for consumer in consumers),
    )
    return values_of(polled)


def values_of(polled: list[Records]) -> list[bytes]:
    return sorted(record.value for records in polled for each in records.values() for record in each)


def read(consumer: Consumer, count: int) -> list[bytes]:
    return poll_until([consumer], lambda polled: len(values_of(polled)) >= count)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("name", ["controller", "broker", "coordinator"])
def test_clients_outlive_a_restart_of_each_service(deployment: Deployment, name: str, number: signal.Signals) -> None:
    service = deployment.services[name]
    rebalances = Rebalances()
    with Producer(bootstrap_servers=deployment.bootstrap) as producer, member(deployment, rebalances) as consumer:
        before = [b"before-%d" % each for each in range(20)]
        send(producer, before)
        assert read(consumer, 20) == sorted(before)
        consumer.commit()

        status = service.end(number)
        assert status == (0 if number is signal.SIGTERM else -signal.SIGKILL)
        during = [producer.send(TOPIC, b"during-%d" % each, partition=0) for each in range(5)]
        service.start()

        assert [future.result(timeout=patience()).offset for future in during] == [10, 11, 12, 13, 14]
        after = [b"after-%d" % each for each in range(20)]
        send(producer, after)
        assert read(consumer, 25) == sorted([*after, *(b"during-%d" % each for each in range(5))])
        consumer.commit()
        assert rebalances.calls == ["assigned"], "a restart is no reason to rebalance"
        committed = consumer.committed(PARTITIONS)
    assert {tp.partition: each.offset for tp, each in committed.items() if each} == {0: 25, 1: 20}


@pytest.mark.slow
def test_a_group_does_not_notice_that_its_coordinator_was_killed(deployment: Deployment) -> None:
    listeners = Rebalances(), Rebalances()
    with contextlib.ExitStack() as stack:
        producer = stack.enter_context(Producer(bootstrap_servers=deployment.bootstrap))
        admin = stack.enter_context(Admin(bootstrap_servers=deployment.bootstrap))
        members = [stack.enter_context(member(deployment, listener)) for listener in listeners]
        poll_until(members, lambda _: all(len(each.assignment()) == 1 for each in members))
        assert frozenset().union(*(each.assignment() for each in members)) == PARTITIONS
        send(producer, [b"1", b"2"])
        poll_until(members, lambda polled: len(values_of(polled)) == 2)
        for each in members:
            each.commit()
        group = admin.describe_groups([GROUP])[GROUP]
        seen = [list(listener.calls) for listener in listeners]

        deployment.coordinator.end(signal.SIGKILL)
        # Records flow without a coordinator, because only commits need one.
        send(producer, [b"3", b"4"])
        assert poll_until(members, lambda polled: len(values_of(polled)) == 2) == [b"3", b"4"]
        deployment.coordinator.start()
        for each in members:
            each.commit()

        again = admin.describe_groups([GROUP])[GROUP]
        assert (again.state, again.generation_id) == ("Stable", group.generation_id)
        assert {each.member_id for each in again.members} == {each.member_id for each in group.members}
        assert [list(listener.calls) for listener in listeners] == seen
        assert {tp.partition: group_offset.offset for tp, group_offset in admin.list_group_offsets(GROUP).items()} == {
            0: 2,
            1: 2,
        }
