"""Tests that groups with auto.offset.reset=latest read every record of partitions that are added to their topics."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm import Admin, Consumer, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from klamm_coordinator.groups.settings import CLIENT
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.waiting import patience, wait_until

COUNT = 400
PROTOCOLS = ("classic", "consumer")


@pytest.fixture(scope="module")
def klamm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KlammProcess]:
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.consumer.heartbeat.interval.ms": "500",
    }
    with running_cluster(tmp_path_factory.mktemp("growing"), settings) as running:
        yield running


@pytest.fixture
def admin(klamm: KlammProcess) -> Iterator[Admin]:
    with Admin(bootstrap_servers=klamm.bootstrap) as admin:
        yield admin


@pytest.fixture
def name() -> str:
    """Returns the name of a topic and a group."""
    return f"growing-{uuid.uuid4().hex[:8]}"


class Reader:
    """A consumer in a thread of its own."""

    def __init__(self, bootstrap: str, group: str, protocol: str, *topics: str, pattern: str | None = None) -> None:
        self.values: list[bytes] = []
        self.positions: dict[TopicPartition, int] = {}
        self._is_closed = threading.Event()
        self._consumer = Consumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="latest",
            metadata_max_age_ms=1_000,
            heartbeat_interval_ms=500,
        )
        if pattern is None:
            self._consumer.subscribe(topics)
        else:
            self._consumer.subscribe(pattern=pattern)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with self._consumer as consumer:
            while not self._is_closed.is_set():
                for records in consumer.poll(100).values():
                    self.values += [record.value or b"" for record in records]
                self.positions = {tp: consumer.position(tp) for tp in consumer.assignment()}

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.values) >= count, lambda: f"{len(self.values)} records, {self.positions}")

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed.set()
        self._thread.join(patience())


def write(bootstrap: str, topic: str, partition_count: int) -> None:
    """Writes COUNT records, the same number into each partition."""
    with Producer(bootstrap_servers=bootstrap, metadata_max_age_ms=100) as producer:
        wait_until(lambda: len(producer.partitions_for(topic)) == partition_count)
        for number in range(COUNT):
            producer.send(topic, b"%d" % number, partition=number % partition_count)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_runs_while_the_topic_grows(klamm: KlammProcess, admin: Admin, name: str, protocol: str) -> None:
    admin.create_topics([NewTopic(name, partition_count=1)])
    with Reader(klamm.bootstrap, name, protocol, name) as reader:
        wait_until(lambda: reader.positions)
        admin.create_partitions({name: 4})
        write(klamm.bootstrap, name, 4)
        reader.wait_for(COUNT)
    assert sorted(reader.values) == sorted(b"%d" % number for number in range(COUNT))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_that_is_down_while_the_topic_grows(
    klamm: KlammProcess, admin: Admin, name: str, protocol: str
) -> None:
    admin.create_topics([NewTopic(name, partition_count=1)])
    with Reader(klamm.bootstrap, name, protocol, name) as first:
        wait_until(lambda: first.positions)
    admin.create_partitions({name: 4})
    write(klamm.bootstrap, name, 4)
    with Reader(klamm.bootstrap, name, protocol, name) as second:
        # The group has committed offset 0 of partition 0, and has no offset of the others.
        second.wait_for(COUNT)
    assert sorted(second.values) == sorted(b"%d" % number for number in range(COUNT))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_that_a_pattern_matches_later(klamm: KlammProcess, admin: Admin, name: str, protocol: str) -> None:
    admin.create_topics([NewTopic(f"{name}-a", partition_count=1)])
    with Reader(klamm.bootstrap, name, protocol, pattern=f"{name}-.*") as reader:
        wait_until(lambda: reader.positions)
        admin.create_topics([NewTopic(f"{name}-b", partition_count=3)])
        write(klamm.bootstrap, f"{name}-b", 3)
        reader.wait_for(COUNT)


def test_a_new_partition_whose_first_records_were_deleted_begins_with_the_oldest(
    klamm: KlammProcess, admin: Admin, name: str
) -> None:
    old, new = TopicPartition(name, 0), TopicPartition(name, 1)
    admin.create_topics([NewTopic(name, partition_count=1)])
    admin.alter_group_offsets(name, {old: OffsetAndMetadata(0)})
    admin.create_partitions({name: 2})
    with Producer(bootstrap_servers=klamm.bootstrap) as producer:
        for number in range(10):
            producer.send(name, b"%d" % number, partition=1)
    admin.delete_records({new: 4})
    listed = admin.list_group_offsets(name)
    assert {tp: one and one.offset for tp, one in listed.items()} == {old: 0, new: 4}
    with Reader(klamm.bootstrap, name, "consumer", name) as reader:
        reader.wait_for(6)
    assert reader.values == [b"%d" % number for number in range(4, 10)]


def test_a_setting_lets_the_client_decide(tmp_path: Path, name: str) -> None:
    settings = {"group.new.partition.offset.reset": CLIENT}
    with running_cluster(tmp_path, settings) as klamm, Admin(bootstrap_servers=klamm.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partition_count=1)])
        admin.alter_group_offsets(name, {TopicPartition(name, 0): OffsetAndMetadata(0)})
        admin.create_partitions({name: 2})
        assert admin.list_group_offsets(name).keys() == {TopicPartition(name, 0)}
