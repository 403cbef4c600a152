"""Tests brokers with two log dirs each: replicas that move between dirs under load, and a dir that fails."""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm import Admin, Consumer, NewTopic, Producer, TopicPartition
from tests.support.broker_cluster import BrokerCluster, broker_cluster, describe, live_brokers
from tests.support.cli_runner import KlammCommand
from tests.support.violation import verdict
from tests.support.waiting import patience, wait_until

PACE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    with broker_cluster(
        tmp_path_factory.mktemp("log-dirs"), log_dirs=2, log_flush_offset_checkpoint_interval_ms="300"
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(running: BrokerCluster) -> Iterator[Admin]:
    with running.admin() as made:
        yield made


@pytest.fixture
def cluster(running: BrokerCluster, admin: Admin) -> BrokerCluster:
    running.restore(admin)
    return running


@pytest.fixture
def klamm(cluster: BrokerCluster) -> KlammCommand:
    return KlammCommand(cluster.bootstrap)


class Writer:
    """A producer for partition 0 of a topic that runs until the block ends.

    `values` are those acknowledged by all in sync.
    """

    def __init__(self, cluster: BrokerCluster, topic: str) -> None:
        self._bootstrap = cluster.bootstrap
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.values: list[bytes] = []

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with Producer(bootstrap_servers=self._bootstrap, acks="all", metadata_max_age_ms=500) as producer:
            while not self._stop.is_set():
                value = b"%d" % len(self.values)
                producer.send(self._topic, value, partition=0).result(patience())
                self.values.append(value)


def read(cluster: BrokerCluster, topic: str, count: int, partitions: int = 1) -> list[bytes]:
    """Returns the values at the first `count` offsets of the topic, in the order of each partition."""
    with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        assigned = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(assigned)
        values: list[bytes] = []

        def enough() -> bool:
            for records in consumer.poll(timeout_ms=200).values():
                values.extend(record.value for record in records if record.value is not None)
            return sum(map(consumer.position, assigned)) >= count

        wait_until(enough, cluster.logs)
    return values


def replicas(klamm: KlammCommand, topic: str, broker: int, partition: int = 0) -> dict[str, str]:
    """Returns the states of one partition's replica on one broker, by path."""
    rows = klamm.ok("log-dirs", "describe", topic, "--broker", broker, "--json").document
    return {row["path"]: row["state"] for row in rows if row["partition"] == partition}


def home_of(klamm: KlammCommand, topic: str, broker: int) -> str:
    (path,) = replicas(klamm, topic, broker)
    return path


def other(cluster: BrokerCluster, broker: int, path: str) -> str:
    return next(str(log_dir) for log_dir in cluster.log_dirs(broker) if str(log_dir) != path)


def wait_moved(cluster: BrokerCluster, klamm: KlammCommand, topic: str, broker: int, path: str) -> None:
    wait_until(lambda: replicas(klamm, topic, broker) == {path: "current"}, cluster.logs)


def test_leaders_and_followers_move_while_they_are_written_to(
    cluster: BrokerCluster, admin: Admin, klamm: KlammCommand
) -> None:
    admin.create_topics([NewTopic("moved", assignments={0: (1, 2)})])
    with Writer(cluster, "moved") as writer:
        wait_until(lambda: len(writer.values) > 100, cluster.logs)
        for broker in (1, 2):
            target = other(cluster, broker, home_of(klamm, "moved", broker))
            klamm.ok("log-dirs", "move", "moved", 0, "--broker", broker, "--to", target)
            wait_moved(cluster, klamm, "moved", broker, target)
        moved = len(writer.values)
        wait_until(lambda: len(writer.values) > moved + 50, cluster.logs)
    found = read(cluster, "moved", len(writer.values))
    with verdict():
        assert found == writer.values
    assert set(describe(admin, "moved").partitions[0].isr) == {1, 2}
    wait_until(lambda: cluster.records(1, "moved") == cluster.records(2, "moved") != b"", cluster.logs)
    cluster.kill(1)
    cluster.brokers[1].start()
    wait_until(lambda: set(describe(admin, "moved").partitions[0].isr) == {1, 2}, cluster.logs)
    found = read(cluster, "moved", len(writer.values))
    with verdict():
        assert found == writer.values


def test_a_slow_log_dir_move_resumes_after_a_kill_and_can_be_cancelled(
    cluster: BrokerCluster, admin: Admin, klamm: KlammCommand
) -> None:
    admin.create_topics([NewTopic("slow", assignments={0: (3,)})])
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for number in range(60):  # one batch per record: a throttle of one byte per second passes one in eleven seconds
            producer.send("slow", b"%d" % number, partition=0).result(patience())
    home = home_of(klamm, "slow", 3)
    target = other(cluster, 3, home)
    klamm.ok("configs", "alter", "--all-brokers", "--set", f"{PACE}=1")
    move = ("log-dirs", "move", "slow", 0, "--broker", 3, "--to", target)
    assert klamm.ok(*move, "--dry-run").out == f"would begin to move slow-0 of broker 3 to {target}\n"
    document = {"broker": 3, "path": target, "moving": ["slow-0"]}
    assert klamm.ok(*move, "--dry-run", "--json").document == {**document, "validate_only": True}
    assert replicas(klamm, "slow", 3) == {home: "current"}
    assert klamm.ok(*move, "--json").document == {**document, "validate_only": False}
    assert replicas(klamm, "slow", 3) == {home: "current", target: "future"}
    cluster.kill(3)
    cluster.brokers[3].start()
    cluster.restore(admin)
    wait_until(lambda: replicas(klamm, "slow", 3) == {home: "current", target: "future"}, cluster.logs)
    klamm.ok("log-dirs", "move", "slow", 0, "--broker", 3, "--to", home)
    assert replicas(klamm, "slow", 3) == {home: "current"}
    klamm.ok("log-dirs", "move", "slow", 0, "--broker", 3, "--to", target)
    assert replicas(klamm, "slow", 3) == {home: "current", target: "future"}
    klamm.ok("configs", "alter", "--all-brokers", "--delete", PACE)
    wait_moved(cluster, klamm, "slow", 3, target)
    assert read(cluster, "slow", 60) == [b"%d" % number for number in range(60)]


def test_invalid_log_dir_moves_are_refused(cluster: BrokerCluster, admin: Admin, klamm: KlammCommand) -> None:
    admin.create_topics([NewTopic("refused", assignments={0: (1,)})])
    wait_until(lambda: bool(replicas(klamm, "refused", 1)), cluster.logs)
    target = str(cluster.log_dir(2))
    for options in (["--dry-run"], []):
        nowhere = klamm.refused(1, "log-dirs", "move", "refused", 0, "--broker", 1, "--to", "/nowhere", *options)
        assert "'/nowhere' is not a log directory of this broker" in nowhere
        elsewhere = klamm.refused(1, "log-dirs", "move", "refused", 0, "--broker", 2, "--to", target, *options)
        assert "refused-0 has no replica on broker 2" in elsewhere
        # The broker may be starting, so the command waits for it.
        to_broker_9 = ("--broker", 9, "--to", target, "--timeout", 1)
        unknown = klamm.refused(3, "log-dirs", "move", "refused", 0, *to_broker_9, *options)
        assert "broker 9 is not among the live brokers" in unknown


def test_only_the_replicas_of_a_failed_log_dir_go_offline(
    cluster: BrokerCluster, admin: Admin, klamm: KlammCommand
) -> None:
    numbers = range(4)
    admin.create_topics([NewTopic("failing", assignments=dict.fromkeys(numbers, (1, 2, 3)))])
    wait_until(
        lambda: all(len(partition.isr) == 3 for partition in describe(admin, "failing").partitions), cluster.logs
    )
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all", metadata_max_age_ms=500) as producer:

        def send(text: bytes) -> None:
            for future in [producer.send("failing", text, partition=number) for number in numbers]:
                future.result(patience())

        send(b"before")
        broken = Path(cluster.log_dir(1))
        lost = {number for number in numbers if str(broken) in replicas(klamm, "failing", 1, number)}
        assert 0 < len(lost) < len(numbers)
        aside = broken.with_name("aside")
        broken.rename(aside)

        def failed_over() -> bool:
            partitions = describe(admin, "failing").partitions
            return all(
                (partition.offline_replicas == (1,)) == (partition.partition in lost) for partition in partitions
            ) and all((partition.leader in (2, 3)) == (partition.partition in lost) for partition in partitions)

        wait_until(failed_over, lambda: f"{describe(admin, 'failing')}\n{cluster.logs()}")
        send(b"during")
        aside.rename(broken)
        cluster.kill(1)
        cluster.brokers[1].start()
        wait_until(
            lambda: all(len(partition.isr) == 3 for partition in describe(admin, "failing").partitions), cluster.logs
        )
        send(b"after")
    found = read(cluster, "failing", 12, partitions=4)
    assert sorted(found) == sorted([b"before", b"during", b"after"] * 4)
    for number in numbers:
        wait_until(
            lambda number=number: len({cluster.records(one, "failing", number) for one in (1, 2, 3)}) == 1,
            cluster.logs,
        )


def test_a_broker_whose_disks_were_replaced_leads_only_after_an_unclean_election(
    cluster: BrokerCluster, admin: Admin, klamm: KlammCommand
) -> None:
    """The broker stopped cleanly and had the only replica. Now the replica is empty, but the old disks may return."""
    admin.create_topics([NewTopic("alone", assignments={0: (3,)})])
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        producer.send("alone", b"kept", partition=0).result(patience())
    disks = {path: path.with_name(f"{path.name}-away") for path in cluster.log_dirs(3)}

    def restart() -> None:
        cluster.brokers[3].start()
        wait_until(lambda: 3 in live_brokers(admin), cluster.logs)
        assert describe(admin, "alone").partitions[0].leader == -1

    assert cluster.brokers[3].end(signal.SIGTERM) == 0
    for path, away in disks.items():
        path.rename(away)
    restart()
    assert "broker=3 registers without some of its log directories" in cluster.controller.log_path.read_text()
    assert cluster.brokers[3].end(signal.SIGTERM) == 0
    for path, away in disks.items():
        shutil.rmtree(path)
        away.rename(path)
    restart()
    klamm.ok("topics", "elect-leaders", "alone", "--unclean")
    assert read(cluster, "alone", 1) == [b"kept"]
