"""Tests what the coordinator tells about groups: what they have still to read, since when, until when, and what they
lost."""

from __future__ import annotations

import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from prometheus_client.parser import text_string_to_metric_families

from klamm import Admin, Consumer, NewTopic, Producer, TopicPartition
from klamm.admin import PartitionLagDescription
from klamm.errors import GroupIdNotFoundError
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.ports import free_port
from tests.support.waiting import patience, wait_until

HOUR = 3_600_000


@pytest.fixture(scope="module")
def metrics_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def klamm(tmp_path_factory: pytest.TempPathFactory, metrics_port: int) -> Iterator[KlammProcess]:
    settings = {"group.lag.interval.ms": "1000", "metrics.port": str(metrics_port)}
    with running_cluster(tmp_path_factory.mktemp("lag"), settings) as running:
        yield running


@pytest.fixture
def admin(klamm: KlammProcess) -> Iterator[Admin]:
    with Admin(bootstrap_servers=klamm.bootstrap) as admin:
        yield admin


@pytest.fixture
def name(admin: Admin) -> str:
    """Returns the name of a topic with two partitions, and of a group."""
    name = f"lag-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 2)])
    return name


def write(klamm: KlammProcess, topic: str, count: int, *, ago_ms: int = 0, transactional_id: str = "") -> None:
    """Writes records into partition 0. A transaction is aborted."""
    timestamp_ms = round(time.time() * 1000) - ago_ms
    settings = {"transactional_id": transactional_id} if transactional_id else {}
    with Producer(bootstrap_servers=klamm.bootstrap, **settings) as producer:
        if transactional_id:
            producer.init_transactions()
            producer.begin_transaction()
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0, timestamp_ms=timestamp_ms)
        producer.flush()
        if transactional_id:
            producer.abort_transaction()


def lag(admin: Admin, name: str, partition: int = 0) -> PartitionLagDescription:
    return admin.describe_group_lag([name])[name].partitions[partition]


def metric(port: int, name: str, group: str, partition: int = 0) -> float | None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=patience()) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    wanted = {"group": group, "partition": str(partition)}
    samples = [sample for family in families if family.name == name for sample in family.samples]
    return next((sample.value for sample in samples if wanted.items() <= sample.labels.items()), None)


def test_a_group_knows_how_old_its_next_record_is_and_when_retention_deletes_it(
    klamm: KlammProcess, admin: Admin, name: str, metrics_port: int
) -> None:
    write(klamm, name, 3, ago_ms=3 * HOUR)
    write(klamm, name, 4, ago_ms=HOUR)
    admin.alter_group_offsets(name, {TopicPartition(name, 0): 3})
    found = lag(admin, name)
    assert (found.committed_offset, found.lag, found.lost_count) == (3, 4, 0)
    assert found.behind_ms == pytest.approx(HOUR, abs=60_000)
    assert found.next_deletion_ms is not None
    assert found.next_deletion_ms - time.time() * 1000 == pytest.approx(167 * HOUR, abs=60_000)
    without_commit = lag(admin, name, 1)
    assert (without_commit.committed_offset, without_commit.lag, without_commit.high_watermark) == (None, None, 0)
    wait_until(lambda: metric(metrics_port, "klamm_coordinator_group_unread_records", name) == 4)
    assert metric(metrics_port, "klamm_coordinator_group_behind_seconds", name) == pytest.approx(3_600, abs=60)
    left_s = metric(metrics_port, "klamm_coordinator_group_unread_deletion_seconds", name)
    assert left_s == pytest.approx(167 * 3_600, abs=60)


def test_a_group_has_nothing_to_read_of_an_aborted_transaction(klamm: KlammProcess, admin: Admin, name: str) -> None:
    write(klamm, name, 5)
    admin.alter_group_offsets(name, {TopicPartition(name, 0): 5})
    write(klamm, name, 20, transactional_id=name)
    found = lag(admin, name)
    assert (found.high_watermark, found.lag, found.behind_ms) == (26, 0, 0)


def test_an_open_transaction_that_holds_records_back_is_named(klamm: KlammProcess, admin: Admin, name: str) -> None:
    write(klamm, name, 1)
    admin.alter_group_offsets(name, {TopicPartition(name, 0): 1})
    with Producer(bootstrap_servers=klamm.bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(name, b"held", partition=0).result(patience())
        write(klamm, name, 30)
        found = lag(admin, name)
        assert (found.lag, found.last_stable_offset) == (31, 1)
        described = admin.describe_transactions([name])[name]
        assert found.held_by_producer_id == described.producer_id
        assert found.held_since_ms == pytest.approx(time.time() * 1000, abs=60_000)
        producer.commit_transaction()
    assert lag(admin, name).held_by_producer_id is None


def test_lost_records_are_counted_kept_and_forgotten(
    klamm: KlammProcess, admin: Admin, name: str, metrics_port: int
) -> None:
    tp = TopicPartition(name, 0)
    write(klamm, name, 100)
    admin.alter_group_offsets(name, {tp: 10})
    admin.delete_records({tp: 40})
    wait_until(lambda: metric(metrics_port, "klamm_coordinator_group_lost_records", name) == 30)
    with Consumer(bootstrap_servers=klamm.bootstrap, group_id=name, auto_offset_reset="latest") as consumer:
        consumer.subscribe([name])
        wait_until(lambda: consumer.poll(100) is not None and bool(consumer.assignment()))
        consumer.commit({tp: 100})
    assert (lag(admin, name).lag, lag(admin, name).lost_count) == (0, 30)
    assert admin.forget_lost_records(name, ["another"]) == 0
    assert admin.forget_lost_records(name) == 30
    assert lag(admin, name).lost_count == 0
    wait_until(lambda: metric(metrics_port, "klamm_coordinator_group_lost_records", name) is None)


def test_counts_of_lost_records_survive_a_restart(tmp_path: Path) -> None:
    with running_cluster(tmp_path, {"group.lag.interval.ms": "3600000"}) as klamm:
        with Admin(bootstrap_servers=klamm.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 1)])
            write(klamm, "t", 10)
            admin.alter_group_offsets("g", {TopicPartition("t", 0): 2})
            admin.delete_records({TopicPartition("t", 0): 7})
            wait_until(lambda: lag(admin, "g").lost_count == 5)
            admin.alter_group_offsets("g", {TopicPartition("t", 0): 10})
            assert lag(admin, "g").lost_count == 5, "the leader told it at once"
        klamm.kill()
        klamm.start()
        with Admin(bootstrap_servers=klamm.bootstrap) as admin:
            assert lag(admin, "g").lost_count == 5


def test_the_rates_of_a_group_that_reads_are_known_after_some_commits(
    klamm: KlammProcess, admin: Admin, name: str
) -> None:
    tp = TopicPartition(name, 0)
    committed = 0

    def rates() -> tuple[float | None, float | None]:
        nonlocal committed
        committed += 2
        write(klamm, name, 4)
        admin.alter_group_offsets(name, {tp: committed})
        found = lag(admin, name)
        return found.consumed_per_s, found.produced_per_s

    def are_known() -> bool:
        consumed_per_s, produced_per_s = rates()
        return bool(consumed_per_s and produced_per_s and produced_per_s > consumed_per_s)

    wait_until(are_known)
    assert lag(admin, name).catch_up_ms is None, "more is written than read"


def test_a_group_that_does_not_exist_is_refused_by_name(admin: Admin) -> None:
    with pytest.raises(GroupIdNotFoundError, match="'nobody'"):
        admin.describe_group_lag(["nobody"])
    with pytest.raises(GroupIdNotFoundError, match="'nobody'"):
        admin.forget_lost_records("nobody")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_time_between_commits_and_the_time_for_a_poll_are_known(
    klamm: KlammProcess, admin: Admin, name: str, protocol: str
) -> None:
    write(klamm, name, 2_000)
    kafka = confluent_kafka.Consumer(
        {
            "bootstrap.servers": klamm.kafka_bootstrap,
            "group.id": name,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "max.poll.interval.ms": 123_456,
        }
    )
    kafka.subscribe([name])

    def commits_one() -> bool:
        message = kafka.poll(0.2)
        if message is None or message.error() is not None:
            return False
        kafka.commit(message, asynchronous=False)
        return True

    wait_until(commits_one)
    interval_ms = wait_until(lambda: commits_one() and lag(admin, name).commit_interval_ms)
    assert 0 < interval_ms < 60_000
    (member,) = admin.describe_groups([name])[name].members
    assert member.rebalance_timeout_ms == 123_456
    kafka.close()
