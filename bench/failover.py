"""How long a producer's records wait when the leader of their partition is shut down, or killed.

Used by bench/replication.py. Three controllers and three brokers with the shipped defaults. A Producer sends a record
every 5 ms, acks=all, to the partitions of a topic in turn, three replicas each; a record's wait is from `send` to its
acknowledgement. The leader of the first partition is struck, and the longest wait counts of the records sent between
the signal and `AFTER_S` after the process has ended. Then the broker is started again, the preferred leaders are
elected, and the next strike waits until all replicas are in sync. In the end every record must be there once, in
order.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import threading
import time
from typing import NamedTuple

from bench.cluster import Cluster, cluster, describe, wait_until, wait_whole
from klamm import Admin, Consumer, NewTopic, Producer, TopicPartition
from klamm.admin import ElectionType
from klamm_controller.config import ControllerConfig
from klamm_server.config.server_config import load

TOPIC = "stream"
INTERVAL_S = 0.005
AFTER_S = 1.0


class Sent(NamedTuple):
    """One acknowledged record of the stream."""

    at_s: float
    wait_s: float


class Stream(threading.Thread):
    """Sends numbers until stopped."""

    def __init__(self, bootstrap: str, partition_count: int) -> None:
        super().__init__(daemon=True)
        self._servers = bootstrap
        self._partition_count = partition_count
        self._stopping = threading.Event()
        self.sent: list[Sent] = []
        self.count = 0
        self.errors: list[Exception] = []

    def run(self) -> None:
        with Producer(bootstrap_servers=self._servers, acks="all", linger_ms=0) as producer:
            started_s = time.perf_counter()
            while not self._stopping.is_set():
                self._send(producer)
                time.sleep(max(0.0, started_s + self.count * INTERVAL_S - time.perf_counter()))

    def _send(self, producer: Producer) -> None:
        at_s = time.perf_counter()

        def on_delivery(metadata: object, error: Exception | None) -> None:
            self.sent.append(Sent(at_s, time.perf_counter() - at_s))
            if error is not None:
                self.errors.append(error)

        partition = self.count % self._partition_count
        producer.send(TOPIC, b"%d" % self.count, partition=partition, on_delivery=on_delivery)
        self.count += 1

    def stop(self) -> None:
        """Ends the sending. Returns when all records are acknowledged."""
        self._stopping.set()
        self.join()
        assert not self.errors, self.errors[:3]
        assert len(self.sent) == self.count, (len(self.sent), self.count)

    def longest_wait_ms(self, since_s: float, until_s: float) -> float:
        """Returns the longest wait among the records sent in this time, in milliseconds. All of them have been
        acknowledged."""
        return max(sent.wait_s for sent in tuple(self.sent) if since_s <= sent.at_s < until_s) * 1e3


def measure_shutdown(options: argparse.Namespace) -> None:
    """SIGTERM."""
    for partition_count in (1, options.stream_partitions):
        waits = strikes(signal.SIGTERM, options.shutdowns, partition_count)
        print(f"{len(waits)} controlled shutdowns, {partition_count} partitions: longest wait {distribution(waits)}")


def measure_fail_over(options: argparse.Namespace) -> None:
    """SIGKILL."""
    waits = strikes(signal.SIGKILL, options.kills, 1)
    print(f"{len(waits)} kills of the leader: longest wait {distribution(waits)}", flush=True)


def distribution(waits_ms: list[float]) -> str:
    p99 = statistics.quantiles(waits_ms, n=100, method="inclusive")[98]
    return f"p50 {statistics.median(waits_ms):.0f} ms, p99 {p99:.0f} ms, max {max(waits_ms):.0f} ms"


def strikes(number: int, count: int, partition_count: int) -> list[float]:
    """Strikes leaders `count` times. Returns the longest wait after each strike, in ms."""
    with cluster(controllers=3) as running, running.admin() as admin:
        admin.create_topics([NewTopic(TOPIC, partition_count, 3)])
        wait_whole(admin, TOPIC)
        stream = Stream(running.bootstrap, partition_count)
        stream.start()
        wait_until(lambda: len(stream.sent) > partition_count, "a record in every partition")
        time.sleep(2)
        calm_s = time.perf_counter()
        time.sleep(2)
        print(f"{'without a strike':>24}: longest wait {stream.longest_wait_ms(calm_s, calm_s + 1):.0f} ms", flush=True)
        config = load(ControllerConfig, dict(running.controllers[1].spec.settings))
        print(
            f"{'settings':>24}: broker.session.timeout.ms={config.broker_session_timeout_ms},"
            f" connection.loss.timeout.ms={config.connection_loss_timeout_ms}",
            flush=True,
        )
        waits = [strike(running, admin, stream, number) for _ in range(count)]
        stream.stop()
        check(running, stream.count, partition_count)
    return waits


def strike(running: Cluster, admin: Admin, stream: Stream, number: int) -> float:
    wait_whole(admin, TOPIC)
    admin.elect_leaders(ElectionType.PREFERRED)
    time.sleep(1)  # nothing of the last one is under way
    leaders = [one.leader for one in describe(admin, TOPIC).values()]
    leader = leaders[0]
    struck_s = time.perf_counter()
    running.brokers[leader].end(number)
    ended_s = time.perf_counter()
    time.sleep(AFTER_S)
    # Records sent by then were waiting behind the first one; their acknowledgement ends the outage.
    acknowledged = stream.count
    while len(stream.sent) < acknowledged:
        time.sleep(0.01)
    longest_ms = stream.longest_wait_ms(struck_s, ended_s + AFTER_S)
    print(
        f"{signal.Signals(number).name:>8} to broker {leader}, which leads {leaders.count(leader)} of {len(leaders)},"
        f" gone in {ended_s - struck_s:.2f} s:"
        f" longest wait {longest_ms:.0f} ms",
        flush=True,
    )
    running.brokers[leader].start()
    running.wait_live(admin)
    return longest_ms


def check(running: Cluster, count: int, partition_count: int) -> None:
    """Every record is there, once and in order."""
    partitions = [TopicPartition(TOPIC, number) for number in range(partition_count)]
    expected = list(range(partition_count))
    with Consumer(bootstrap_servers=running.bootstrap, enable_auto_commit=False) as consumer:
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(one) < end for one, end in ends.items()):
            for tp, records in consumer.poll(timeout_ms=1_000).items():
                for record in records:
                    assert int(record.value) == expected[tp.partition], (record, expected[tp.partition])
                    expected[tp.partition] += partition_count
    assert min(expected) == count, (expected, count)
