"""Tests a rolling restart under a steady stream: no record is lost, doubled or out of order, and no session times out.

`bench/replication.py --only shutdown` measures how long a record waits. This test prints it.
"""

from __future__ import annotations

import itertools
import pathlib
import signal
import threading
import time

from klamm import NewTopic, Producer, TopicPartition
from tests.support.broker_cluster import broker_cluster, describe
from tests.support.reading import read_all
from tests.support.violation import verdict
from tests.support.waiting import patience, wait_until

TOPIC = "rolling"
PARTITIONS = 3
INTERVAL_S = 0.01


class Stream(threading.Thread):
    """A thread that sends numbers to all partitions in turn until stopped."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self._servers = servers
        self._stopping = threading.Event()
        self.count = 0
        self.acknowledged: list[tuple[int, float]] = []
        """(number, seconds from `send`), in the order of the answers."""
        self.errors: list[Exception] = []

    def run(self) -> None:
        with Producer(bootstrap_servers=self._servers, acks="all", linger_ms=0) as producer:
            while not self._stopping.wait(INTERVAL_S):
                self._send(producer, self.count)
                self.count += 1

    def _send(self, producer: Producer, number: int) -> None:
        sent_s = time.monotonic()

        def on_delivery(_: object, error: Exception | None) -> None:
            self.acknowledged.append((number, time.monotonic() - sent_s))
            if error is not None:
                self.errors.append(error)

        producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=on_delivery)

    def stop(self) -> None:
        """Stops the thread and waits until everything is acknowledged."""
        self._stopping.set()
        self.join(patience())
        assert not self.is_alive()


def read_numbers(servers: str) -> dict[int, list[int]]:
    """Returns the numbers of each partition, in order of their offsets."""
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    found: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    for record in read_all(servers, partitions):
        found[record.partition].append(int(record.value))
    return found


def test_no_record_is_lost_or_reordered_while_each_broker_restarts(tmp_path: pathlib.Path) -> None:
    with broker_cluster(tmp_path, min_insync_replicas="2") as cluster, cluster.admin() as admin:
        # Each broker leads one partition, so that each restart moves one.
        replicas = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}
        admin.create_topics([NewTopic(TOPIC, assignments=replicas)])
        stream = Stream(cluster.bootstrap)
        stream.start()
        for broker_id, broker in cluster.brokers.items():
            wait_until(
                lambda: (
                    all(len(partition.isr) == 3 for partition in describe(admin, TOPIC).partitions)
                    and all(any(number % PARTITIONS == one for number, _ in stream.acknowledged) for one in range(3))
                ),
                cluster.logs,
            )
            assert broker_id in {partition.leader for partition in describe(admin, TOPIC).partitions}
            assert broker.end(signal.SIGTERM) == 0
            assert broker_id not in {partition.leader for partition in describe(admin, TOPIC).partitions}
            settled = len(stream.acknowledged)
            wait_until(lambda settled=settled: len(stream.acknowledged) > settled + 30, cluster.logs)
            broker.start()
        stream.stop()
        found = read_numbers(cluster.bootstrap)
    assert not stream.errors
    assert len(stream.acknowledged) == stream.count
    for number, values in found.items():
        with verdict():
            assert values == list(range(number, stream.count, PARTITIONS))
    for _, group in itertools.groupby(
        sorted(stream.acknowledged, key=lambda one: one[0] % PARTITIONS), key=lambda one: one[0] % PARTITIONS
    ):
        numbers = [number for number, _ in group]
        assert numbers == sorted(numbers), "acknowledged out of order"
    longest_s = max(waited_s for _, waited_s in stream.acknowledged)
    print(f"longest wait of {stream.count} records: {longest_s * 1000:.0f} ms")
