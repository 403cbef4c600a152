"""Measures the speed of a log's compaction, its memory, and its effect on produce calls.

Run: python bench/compaction.py [--records 10000000] [--keys 100000] [--bytes 100]

A broker and its controller are processes of their own. The broker gets records in batches of 1,000, in a topic with
`cleanup.policy=compact`. Their keys are drawn at random, and their values have varying lengths. At first, the dirty
ratio keeps the cleaner from its work. Then the cleaner starts, and the broker's metrics show how long it works. Memory
is the largest resident set during the cleaning minus the one before it. Meanwhile, one caller produces single
records of 1 KiB to another topic with acks=all. Each is sent 2 ms after the answer to the last. The latency during the
cleaning is compared with the latency before it. In the end the topic is read from the start, and every key's last value
must be there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import re
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from grpc import aio

from bench.broker_produce import process
from bench.servers import free_port
from klamm import Admin, Consumer, KlammError, NewTopic, TopicPartition
from klamm.admin import ConfigChange, ConfigResource, ConfigResourceType
from klamm.model import EARLIEST_TIMESTAMP
from klamm.records import encode_batch
from klamm.wire.framed import encode_framed
from klamm.wire.v1.broker_pb2 import ProduceHeader, ProducePartition
from klamm.wire.v1.broker_rpc import BROKER
from tests.support.raw_stub import RawStub

TOPIC, PINGS = "states", "pings"
RECORDS_PER_BATCH = 1_000
IN_FLIGHT = 4
SEGMENT_BYTES = 64 * 1024**2
CALM_S = 3
"""The seconds of latency measurement before the cleaning."""
SETTLED_S = 1.0
"""The cleaner has nothing to do when no run was counted for so long."""
TIMEOUT_S = 300


@dataclass
class Cluster:
    """A broker with its controller."""

    bootstrap: str
    metrics_port: int
    process: psutil.Process

    def cpu_s(self) -> float:
        """CPU seconds of the broker so far, user and system."""
        times = self.process.cpu_times()
        return times.user + times.system

    def rss_mb(self) -> float:
        """Its resident memory."""
        return self.process.memory_info().rss / 1e6

    def metric(self, name: str) -> float:
        """Returns one value of the cleaner from /metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=30) as answer:
            found = re.search(rf"^klamm_broker_log_cleaner_{name} (\S+)$", answer.read().decode(), re.MULTILINE)
        assert found is not None, name
        return float(found[1])


@contextlib.contextmanager
def running_cluster() -> Iterator[Cluster]:
    controller_port, broker_port, metrics_port = free_port(), free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="klamm-compaction-") as scratch, contextlib.ExitStack() as stack:
        directory = Path(scratch)
        controller = {
            "node.id": "100",
            "listeners": f"GRPC://127.0.0.1:{controller_port}",
            "metadata.log.dir": str(directory / "metadata"),
        }
        broker = {
            "node.id": "1",
            "listeners": f"GRPC://127.0.0.1:{broker_port}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
            "log.dirs": str(directory / "logs"),
            "metrics.port": str(metrics_port),
            "log.cleaner.backoff.ms": "100",
        }
        stack.enter_context(process("klamm_controller", controller, directory / "controller.log"))
        started = stack.enter_context(process("klamm_broker", broker, directory / "broker.log"))
        yield Cluster(f"127.0.0.1:{broker_port}", metrics_port, psutil.Process(started.pid))


def create_topics(bootstrap: str) -> None:
    """Creates the topics as soon as a broker accepts them. Returns when the broker leads them."""
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": str(SEGMENT_BYTES),
        "min.cleanable.dirty.ratio": "1",
        "file.delete.delay.ms": "1000",
    }
    topics = [NewTopic(TOPIC, partition_count=1, configs=configs), NewTopic(PINGS, partition_count=1)]
    deadline = time.perf_counter() + TIMEOUT_S
    while True:
        try:
            with Admin(bootstrap_servers=bootstrap) as admin:
                admin.create_topics(topics)
                break
        except KlammError:
            assert time.perf_counter() < deadline, "the broker does not start"
            time.sleep(0.2)
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.list_offsets({TopicPartition(topic.name, 0): EARLIEST_TIMESTAMP for topic in topics})


@dataclass
class Load:
    """The records that were sent."""

    last_values: dict[bytes, bytes] = field(default_factory=dict)
    log_bytes: int = 0


def request_of(topic: str, batch: bytes) -> bytes:
    part = ProducePartition(topic=topic, partition=0, records_bytes=len(batch))
    return encode_framed(ProduceHeader(acks=-1, timeout_ms=30_000, partitions=[part]), [batch])


async def fill(bootstrap: str, load: Load, options: argparse.Namespace) -> None:
    """Sends all records, a few batches at a time."""
    rng = random.Random(1)
    keys = [b"key-%07d" % number for number in range(options.keys)]
    filler = b"x" * options.bytes
    low = options.bytes // 2
    room = asyncio.Semaphore(IN_FLIGHT)

    async def requests() -> AsyncIterator[bytes]:
        for start in range(0, options.records, RECORDS_PER_BATCH):
            now_ms = time.time_ns() // 1_000_000
            chosen = rng.choices(keys, k=RECORDS_PER_BATCH)
            values = [b"%d:" % (start + i) + filler[: low + (i * 37) % options.bytes] for i in range(RECORDS_PER_BATCH)]
            batch = encode_batch([(now_ms, key, value, ()) for key, value in zip(chosen, values, strict=True)])
            load.last_values.update(zip(chosen, values, strict=True))
            load.log_bytes += len(batch)
            await room.acquire()
            yield request_of(TOPIC, batch)

    async with aio.insecure_channel(bootstrap) as channel:
        async for response in RawStub(channel, BROKER).produce_stream(requests()):
            assert not response.partitions[0].error_code, response
            room.release()


class Pinger(threading.Thread):
    """Produces one record after the other until it is stopped. `latencies_ms` holds (time, latency)."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._address = bootstrap
        self._stopping = threading.Event()
        self.latencies_ms: list[tuple[float, float]] = []

    def run(self) -> None:
        asyncio.run(self._ping())

    async def _ping(self) -> None:
        request = request_of(PINGS, encode_batch([(1_700_000_000_000, None, bytes(1024), ())]))
        async with aio.insecure_channel(self._address) as channel:
            produce = RawStub(channel, BROKER).produce
            while not self._stopping.is_set():
                started = time.perf_counter()
                response = await produce(request)
                assert not response.partitions[0].error_code, response
                self.latencies_ms.append((started, (time.perf_counter() - started) * 1e3))
                await asyncio.sleep(0.002)

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def summary(self, since: float, until: float) -> str:
        """p50, p99 and the largest of the calls begun in this time."""
        found = sorted(took for started, took in self.latencies_ms if since <= started < until)
        p99 = statistics.quantiles(found, n=100)[98]
        return f"p50 {statistics.median(found):.1f} ms, p99 {p99:.1f} ms, max {found[-1]:.1f} ms of {len(found)}"


@dataclass
class Cleaning:
    """The figures of the cleaner's work."""

    took_s: float
    read_bytes: float
    written_bytes: float
    rss_growth_mb: float


def clean(cluster: Cluster) -> Cleaning:
    """Lets the cleaner go, and waits until it finds nothing to do."""
    before_mb = peak_mb = cluster.rss_mb()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        resource = ConfigResource(ConfigResourceType.TOPIC, TOPIC)
        admin.incremental_alter_configs({resource: [ConfigChange("min.cleanable.dirty.ratio", "0.01")]})
    runs, took_s, last_run = 0.0, 0.0, time.perf_counter()
    deadline = last_run + TIMEOUT_S
    while runs == 0 or time.perf_counter() - last_run < SETTLED_S:
        assert time.perf_counter() < deadline, "the cleaner does not come to an end"
        peak_mb = max(peak_mb, cluster.rss_mb())
        if (now_runs := cluster.metric("runs_total")) > runs:
            runs, last_run = now_runs, time.perf_counter()
            took_s += cluster.metric("last_run_seconds")
        time.sleep(0.05)
    read_bytes, written_bytes = cluster.metric("read_bytes_total"), cluster.metric("written_bytes_total")
    return Cleaning(took_s, read_bytes, written_bytes, peak_mb - before_mb)


def check(bootstrap: str, load: Load) -> int:
    """Reads the topic from the start, and returns the number of remaining records."""
    left: dict[bytes, bytes] = {}
    count = 0
    partition = TopicPartition(TOPIC, 0)
    with Consumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning()
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            for records in consumer.poll(timeout_ms=1_000, max_records=10_000).values():
                count += len(records)
                left.update((record.key, record.value) for record in records)
    assert left == load.last_values, "a last value is missing or wrong"
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--bytes", type=int, default=100, help="values have half to one and a half as much")
    options = parser.parse_args()
    with running_cluster() as cluster:
        create_topics(cluster.bootstrap)
        load = Load()
        started = time.perf_counter()
        asyncio.run(fill(cluster.bootstrap, load, options))
        filled_s = time.perf_counter() - started
        print(f"produced {options.records:,} records, {load.log_bytes / 1e6:.0f} MB, in {filled_s:.1f} s", flush=True)
        pinger = Pinger(cluster.bootstrap)
        pinger.start()
        time.sleep(CALM_S)
        begun, cpu_before_s = time.perf_counter(), cluster.cpu_s()
        cleaning = clean(cluster)
        cpu_s = cluster.cpu_s() - cpu_before_s
        pinger.stop()
        report(options, load, cleaning, cpu_s)
        print(f"produce before: {pinger.summary(begun - CALM_S + 1, begun)}")
        print(f"produce while cleaning: {pinger.summary(begun, begun + cleaning.took_s)}", flush=True)
        left = check(cluster.bootstrap, load)
        print(f"{left:,} records are left; all {len(load.last_values):,} last values are among them")
    return 0


def report(options: argparse.Namespace, load: Load, cleaning: Cleaning, cpu_s: float) -> None:
    megabytes = load.log_bytes / 1e6
    print(
        f"cleaned {megabytes:.0f} MB in {cleaning.took_s:.1f} s: {megabytes / cleaning.took_s:.0f} MB/s,"
        f" {options.records / cleaning.took_s / 1e6:.2f} M records/s; read {cleaning.read_bytes / 1e6:.0f} MB, wrote"
        f" {cleaning.written_bytes / 1e6:.0f} MB, broker CPU {cpu_s:.1f} s"
    )
    print(f"memory: {cleaning.rss_growth_mb:.0f} MB more at its peak")


if __name__ == "__main__":
    sys.exit(main())
