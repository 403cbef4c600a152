"""Tests consumers with many threads on a real cluster: order per partition, no lost record, commits of handled ones."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from klamm import Admin, Consumer, ConsumerRecord, NewTopic, Producer, TopicPartition
from klamm.consumer import ConsumerThreads, WorkerPool
from klamm.errors import ConfigError
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.violation import verdict
from tests.support.waiting import patience

PARTITIONS = 4
RECORDS = 200


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KlammProcess]:
    with running_cluster(tmp_path_factory.mktemp("threads"), {"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


@pytest.fixture
def topic(cluster: KlammProcess, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partition_count=PARTITIONS, replication_factor=1)])
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(RECORDS):
            producer.send(name, b"%d" % number, partition=number % PARTITIONS)
    return name


Start = Callable[..., Any]


def start_pool(config: dict[str, Any], topics: list[str], handle: Callable[[ConsumerRecord], object]) -> WorkerPool:
    return WorkerPool(config, topics, handle, workers=3, waiting_max=10)


def start_threads(
    config: dict[str, Any], topics: list[str], handle: Callable[[ConsumerRecord], object]
) -> ConsumerThreads:
    return ConsumerThreads(config, topics, handle, threads=2)


BOTH = pytest.mark.parametrize("make", [start_pool, start_threads])


def config(cluster: KlammProcess, topic: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "max.poll.records": 20,
        "auto.commit.interval.ms": 50,
    }


class Seen:
    """The offsets that handlers received, by partition and in order. A record that is delivered again counts once."""

    def __init__(self, wanted: int = RECORDS) -> None:
        self.offsets: dict[int, list[int]] = defaultdict(list)
        self.enough = threading.Event()
        self._wanted = wanted
        self._lock = threading.Lock()

    def __call__(self, record: ConsumerRecord) -> None:
        with self._lock:
            if record.offset not in self.offsets[record.partition]:
                self.offsets[record.partition].append(record.offset)
            if sum(map(len, self.offsets.values())) >= self._wanted:
                self.enough.set()


def committed(cluster: KlammProcess, topic: str) -> list[int]:
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    with Consumer(bootstrap_servers=cluster.bootstrap, group_id=topic) as consumer:
        found = consumer.committed(partitions)
    return [0 if (each := found[tp]) is None else each.offset for tp in partitions]


def run_until_enough(running: Any, seen: Seen) -> None:
    runner = threading.Thread(target=running.run)
    runner.start()
    try:
        assert seen.enough.wait(patience())
    finally:
        running.stop()
        runner.join(patience())
    assert not runner.is_alive()


@BOTH
def test_every_record_is_processed_in_the_order_of_its_partition_and_committed(
    cluster: KlammProcess, topic: str, make: Start
) -> None:
    seen = Seen()

    run_until_enough(make(config(cluster, topic), [topic], seen), seen)

    each = RECORDS // PARTITIONS
    with verdict():
        assert seen.offsets == {number: list(range(each)) for number in range(PARTITIONS)}
    assert committed(cluster, topic) == [each] * PARTITIONS


@BOTH
def test_a_record_whose_handler_failed_is_the_first_one_of_the_next_run(
    cluster: KlammProcess, topic: str, make: Start
) -> None:
    def fail(record: ConsumerRecord) -> None:
        if (record.partition, record.offset) == (1, 17):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        make(config(cluster, topic), [topic], fail).run()
    assert committed(cluster, topic)[1] == 17
    rest = sum(RECORDS // PARTITIONS - offset for offset in committed(cluster, topic))
    seen = Seen(rest)

    run_until_enough(make(config(cluster, topic), [topic], seen), seen)

    assert seen.offsets[1] == list(range(17, RECORDS // PARTITIONS))


def test_a_partition_that_moves_to_another_pool_continues_after_the_last_handled_record(
    cluster: KlammProcess, topic: str
) -> None:
    """The second pool joins while the first is at work. Together they handle every record, in order."""
    seen, joined = Seen(), Seen(1)
    begun = threading.Event()

    def first(record: ConsumerRecord) -> None:
        seen(record)
        begun.set()
        joined.enough.wait(0.05)  # handle records slowly until there are two pools

    def second(record: ConsumerRecord) -> None:
        joined(record)
        seen(record)

    pools = [
        WorkerPool({**config(cluster, topic), "max.poll.interval.ms": 60_000}, [topic], handle, workers=4)
        for handle in (first, second)
    ]
    runners = [threading.Thread(target=pool.run) for pool in pools]
    runners[0].start()
    assert begun.wait(patience())
    runners[1].start()
    try:
        assert seen.enough.wait(patience())
    finally:
        for pool in pools:
            pool.stop()
        for runner in runners:
            runner.join(patience())

    each = RECORDS // PARTITIONS
    assert committed(cluster, topic) == [each] * PARTITIONS
    # The new owner begins at the offset that the former owner had finished, so no record is lost.
    with verdict():
        assert seen.offsets == {number: list(range(each)) for number in range(PARTITIONS)}


@BOTH
def test_automatic_commits_a_missing_group_and_zero_threads_are_refused(make: Start) -> None:
    with pytest.raises(ConfigError, match=r"enable\.auto\.commit=True"):
        make({"group.id": "g", "enable.auto.commit": True}, ["t"], print)
    with pytest.raises(ConfigError, match=r"group\.id"):
        make({}, ["t"], print)
    with pytest.raises(ConfigError, match="workers=0"):
        WorkerPool({"group.id": "g"}, ["t"], print, workers=0)
    with pytest.raises(ConfigError, match="threads=0"):
        ConsumerThreads({"group.id": "g"}, ["t"], print, threads=0)
