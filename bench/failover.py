"""How long a producer's records wait when the leader of their partition is shut down, or killed.

Used by bench/replication.py. Three controllers and three brokers with the shipped defaults. A Producer sends a record
every 5 ms to one partition with three replicas, acks=all; a record's wait is from `send` to its acknowledgement. The
longest wait counts of the records sent between the signal and `AFTER_S` after the process has ended. Then the broker is
started again, and the next strike waits until all replicas are in sync. In the end every record must be there once,
in order.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import threading
import time
from typing import NamedTuple

from cluster import Cluster, cluster, describe, wait_whole

from klamm import Admin, Consumer, NewTopic, Producer, TopicPartition
from klamm_controller.config import ControllerConfig
from klamm_server.config import load

TOPIC = TopicPartition("stream", 0)
INTERVAL_S = 0.005
AFTER_S = 1.0


class Sent(NamedTuple):
    """One record of the stream, acknowledged."""

    at_s: float
    wait_s: float


class Stream(threading.Thread):
    """Sends numbers until stopped."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._servers = bootstrap
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

        producer.send(TOPIC.topic, b"%d" % self.count, partition=0, on_delivery=on_delivery)
        self.count += 1

    def stop(self) -> None:
        """Returns when all is acknowledged."""
        self._stopping.set()
        self.join()
        assert not self.errors, self.errors[:3]
        assert len(self.sent) == self.count, (len(self.sent), self.count)

    def longest_wait_ms(self, since_s: float, until_s: float) -> float:
        """Of the records sent in this time; all of them have been acknowledged."""
        return max(sent.wait_s for sent in tuple(self.sent) if since_s <= sent.at_s < until_s) * 1e3


def measure_shutdown(options: argparse.Namespace) -> None:
    """SIGTERM."""
    waits = strikes(signal.SIGTERM, options.shutdowns)
    print(f"{len(waits)} controlled shutdowns of the leader: longest wait {distribution(waits)}", flush=True)


def measure_fail_over(options: argparse.Namespace) -> None:
    """SIGKILL."""
    waits = strikes(signal.SIGKILL, options.kills)
    print(f"{len(waits)} kills of the leader: longest wait {distribution(waits)}", flush=True)


def distribution(waits_ms: list[float]) -> str:
    p99 = statistics.quantiles(waits_ms, n=100, method="inclusive")[98]
    return f"p50 {statistics.median(waits_ms):.0f} ms, p99 {p99:.0f} ms, max {max(waits_ms):.0f} ms"


def strikes(number: int, count: int) -> list[float]:
    """ms of the longest wait of each of so many strikes at the partition's leader."""
    with cluster(controllers=3) as running, running.admin() as admin:
        admin.create_topics([NewTopic(TOPIC.topic, 1, 3)])
        wait_whole(admin, TOPIC.topic)
        stream = Stream(running.bootstrap)
        stream.start()
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
        check(running, stream.count)
    return waits


def strike(running: Cluster, admin: Admin, stream: Stream, number: int) -> float:
    wait_whole(admin, TOPIC.topic)
    time.sleep(1)  # nothing of the last one is under way
    leader = describe(admin, TOPIC.topic)[TOPIC].leader
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
        f"{signal.Signals(number).name:>8} to broker {leader}, gone in {ended_s - struck_s:.2f} s:"
        f" longest wait {longest_ms:.0f} ms",
        flush=True,
    )
    running.brokers[leader].start()
    running.wait_live(admin)
    return longest_ms


def check(running: Cluster, count: int) -> None:
    """Every record is there, once and in order."""
    expected = 0
    with Consumer(bootstrap_servers=running.bootstrap, enable_auto_commit=False) as consumer:
        consumer.assign([TOPIC])
        consumer.seek_to_beginning()
        end = consumer.end_offsets([TOPIC])[TOPIC]
        while consumer.position(TOPIC) < end:
            for records in consumer.poll(timeout_ms=1_000).values():
                for record in records:
                    assert int(record.value) == expected, (record.value, expected)
                    expected += 1
    assert expected == count, (expected, count)
