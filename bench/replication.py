"""Measures replication: its cost, the catching up of an empty replica, many partitions, and fail-over.

Run: python bench/replication.py [--only costs|catch-up|partitions|shutdown|fail-over]

Three brokers, each a process of its own, and their controllers, on this machine's disk and cores, with the shipped
defaults; the client shares them. Variants that are compared take turns in one run.

costs       acks=all to three replicas beside acks=1 to one: three partitions each, one led by every broker. "batches"
            are prepared ones of 1 MiB over gRPC, so that the brokers are what is measured; "producer" is a Producer
            with records of 1 KiB and `batch.size` 256 KiB. Latency is from `send` to the acknowledgement of single
            records, one every 10 ms, turn about, `linger.ms=0`.
catch-up    a replica is added to a partition of 1 GiB, from the request until it is in sync. Beside it the disk, a
            file of as many bytes in blocks of 1 MiB, without and with a final fsync, and a TCP connection over the
            loopback, blocks of 1 MiB between two processes.
partitions  2,000 partitions with three replicas, idle: memory and CPU of each process over 20 s. Then a broker is
            killed: how long until a record is acknowledged by all in sync in every partition that it led.
shutdown    (bench/failover.py) the longest that a record of a steady stream waits when its leader gets a SIGTERM: a
            stream to one partition, then one to 300
fail-over   (the same) when it gets a SIGKILL
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import pathlib
import signal
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import uvloop
from grpc import aio

from bench.broker_produce import prepared_batch, use_page_cache
from bench.cluster import Cluster, ServerProcess, cluster, describe, wait_until, wait_whole
from bench.failover import measure_fail_over, measure_shutdown
from bench.turns import rounds
from klamm import Admin, NewTopic, Producer, TopicPartition
from klamm.wire.framed import encode_framed
from klamm.wire.v1.broker_pb2 import ProduceHeader, ProducePartition
from klamm.wire.v1.broker_rpc import BROKER
from tests.support.raw_stub import RawStub

MIB = 1024**2
GIB = 1024**3
BROKER_IDS = (1, 2, 3)
BATCH_BYTES = MIB
REQUESTS_PER_BROKER = 3
RECORD = os.urandom(1024)
IDLE_S = 20
DELETED_S = 2.0
TOPICS, PARTITIONS_PER_TOPIC = 20, 100


class Kind(NamedTuple):
    """The way in which a topic is written to."""

    name: str
    acks: Literal[-1, 1]
    replication_factor: int

    @property
    def topic(self) -> str:
        return f"acks-{self.acks % 3}"

    def create(self, admin: Admin, bootstrap: str) -> None:
        """Creates a topic, with one partition for each broker to lead. Returns when records are accepted."""
        replicas = {
            partition: [BROKER_IDS[(partition + each) % 3] for each in range(self.replication_factor)]
            for partition in range(3)
        }
        admin.create_topics([NewTopic(self.topic, assignments=replicas, configs={"file.delete.delay.ms": "0"})])
        wait_whole(admin, self.topic)
        with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
            for sent in [producer.send(self.topic, RECORD, partition=partition) for partition in replicas]:
                sent.result(60)

    def delete(self, admin: Admin) -> None:
        """Returns when the brokers have removed its files, so that the next run finds the memory that they took."""
        admin.delete_topics([self.topic])
        time.sleep(DELETED_S)


KINDS = (Kind("acks=1, one replica", 1, 1), Kind("acks=all, three replicas", -1, 3))


class Throughput(NamedTuple):
    """The figures of one run."""

    mb_per_s: float
    broker_cpu_s_per_gb: float


def summary(runs: list[Throughput]) -> str:
    rates = [run.mb_per_s for run in runs]
    cpu = statistics.median(run.broker_cpu_s_per_gb for run in runs)
    return f"{statistics.median(rates):6.0f} MB/s ({min(rates):.0f} to {max(rates):.0f})  {cpu:5.2f} broker CPU s/GB"


def percentiles(latencies_ms: list[float]) -> str:
    cuts = statistics.quantiles(latencies_ms, n=100, method="inclusive")
    return f"p50 {cuts[49]:6.2f} ms  p99 {cuts[98]:6.2f} ms"


# costs


def request_of(kind: Kind, partition: int, batch: bytes) -> bytes:
    part = ProducePartition(topic=kind.topic, partition=partition, records_bytes=len(batch))
    return encode_framed(ProduceHeader(acks=kind.acks, timeout_ms=30_000, partitions=[part]), [batch])


async def send_batches(running: Cluster, kind: Kind, size_bytes: int) -> None:
    """Sends `size_bytes` bytes, a third to each partition's leader, with a few requests under way to each."""
    batch, _ = prepared_batch(BATCH_BYTES)

    async def to_one(address: str, partition: int) -> None:
        request = request_of(kind, partition, batch)
        left = iter(range(size_bytes // 3 // len(batch)))
        async with aio.insecure_channel(address) as channel:
            produce = RawStub(channel, BROKER).produce

            async def caller() -> None:
                for _ in left:
                    answer = (await produce(request)).partitions[0]
                    assert not answer.error_code, answer

            await asyncio.gather(*(caller() for _ in range(REQUESTS_PER_BROKER)))

    addresses = [running.brokers[broker_id].spec.address for broker_id in BROKER_IDS]
    await asyncio.gather(*(to_one(address, partition) for partition, address in enumerate(addresses)))


def produce_records(running: Cluster, kind: Kind, size_bytes: int) -> None:
    """The same through a Producer."""
    settings = {"acks": str(kind.acks), "batch.size": str(256 * 1024)}
    if kind.acks == 1:
        settings["enable.idempotence"] = "false"
    with Producer({"bootstrap.servers": running.bootstrap, **settings}) as producer:
        for number in range(size_bytes // len(RECORD)):
            last = producer.send(kind.topic, RECORD, partition=number % 3)
        producer.flush()
        assert last.exception(0) is None
        assert not producer.metrics()["record-error-total"]


def throughput(running: Cluster, size_bytes: int, send: Callable[[], None]) -> Throughput:
    cpu_s, started = running.broker_cpu_s(), time.perf_counter()
    send()
    elapsed_s = time.perf_counter() - started
    return Throughput(size_bytes / elapsed_s / 1e6, (running.broker_cpu_s() - cpu_s) / (size_bytes / 1e9))


def latencies(running: Cluster, count: int) -> dict[Kind, list[float]]:
    """ms of single records, turn about."""
    found: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
    producers = {
        kind: Producer(
            bootstrap_servers=running.bootstrap,
            acks=kind.acks,
            linger_ms=0,
            enable_idempotence=kind.acks == -1,
        )
        for kind in KINDS
    }
    for number in range(count):
        for kind, producer in producers.items():
            started = time.perf_counter()
            producer.send(kind.topic, RECORD, partition=number % 3).result(60)
            if number >= count // 10:
                found[kind].append((time.perf_counter() - started) * 1e3)
            time.sleep(0.01)
    for producer in producers.values():
        producer.close()
    return found


def measure_costs(options: argparse.Namespace) -> None:
    size_bytes = int(options.gigabytes * 1e9)
    with cluster() as running, running.admin() as admin:
        use_page_cache(running.directory, options.gigabytes * 4)
        for kind in KINDS:
            kind.create(admin, running.bootstrap)
        for kind, latency in latencies(running, options.singles).items():
            print(f"{kind.name:28} single records  {percentiles(latency)}", flush=True)
        for kind in KINDS:
            kind.delete(admin)
        ways: dict[str, Callable[[Kind], None]] = {
            "batches": lambda kind: uvloop.run(send_batches(running, kind, size_bytes)),
            "producer": lambda kind: produce_records(running, kind, size_bytes),
        }
        for way, send in ways.items():
            runs: dict[Kind, list[Throughput]] = {kind: [] for kind in KINDS}
            for order in rounds(KINDS, options.runs):
                for kind in order:
                    kind.create(admin, running.bootstrap)
                    runs[kind].append(throughput(running, size_bytes, partial(send, kind)))
                    kind.delete(admin)
            for kind in KINDS:
                print(f"{kind.name:28} {way:9} {summary(runs[kind])}", flush=True)
            one, three = (statistics.median(run.mb_per_s for run in runs[kind]) for kind in KINDS)
            print(f"{'':28} {way:9} {one / three:.1f} times slower with three replicas", flush=True)


# catch-up


def disk_mb_per_s(directory: pathlib.Path, size_bytes: int) -> tuple[float, float]:
    """Returns the speeds of writing a file from its beginning to its end: into the page cache, and until it is on
    disk."""
    path, block = directory / "sequential", os.urandom(MIB)
    started = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for _ in range(size_bytes // len(block)):
            file.write(block)
        written_s = time.perf_counter() - started
        os.fsync(file.fileno())
    synced_s = time.perf_counter() - started
    path.unlink()
    return size_bytes / written_s / 1e6, size_bytes / synced_s / 1e6


def _receive(port: multiprocessing.SimpleQueue[int], size_bytes: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port.put(listening.getsockname()[1])
        connection, _ = listening.accept()
        with connection:
            buffer, left = bytearray(MIB), size_bytes
            while left:
                left -= connection.recv_into(buffer, min(left, len(buffer)))
            connection.send(b"!")


def loopback_mb_per_s(size_bytes: int) -> float:
    """Returns the speed of one TCP connection between two processes."""
    context = multiprocessing.get_context("spawn")
    port = context.SimpleQueue()
    receiver = context.Process(target=_receive, args=(port, size_bytes))
    receiver.start()
    block = os.urandom(MIB)
    with socket.create_connection(("127.0.0.1", port.get())) as connection:
        started = time.perf_counter()
        for _ in range(size_bytes // len(block)):
            connection.sendall(block)
        assert connection.recv(1) == b"!"
        elapsed_s = time.perf_counter() - started
    receiver.join()
    return size_bytes / elapsed_s / 1e6


def measure_catch_up(options: argparse.Namespace) -> None:
    topic = TopicPartition("grown", 0)
    with cluster() as running, running.admin() as admin:
        configs = {"file.delete.delay.ms": "0"}  # the next run finds the memory that this one took
        admin.create_topics([NewTopic(topic.topic, assignments={0: [1]}, configs=configs)])
        use_page_cache(running.directory, 4 * GIB / 1e9)
        asyncio.run(fill(running.brokers[1].spec.address, topic, GIB))
        rates = []
        for number in range(options.runs):
            written, synced = disk_mb_per_s(running.directory, GIB)
            tcp = loopback_mb_per_s(GIB)
            cpu_s = running.broker_cpu_s()
            started = time.perf_counter()
            admin.alter_partition_reassignments({topic: [1, 2 + number % 2]})
            wait_until(lambda: len(describe(admin, topic.topic)[topic].isr) == 2, "caught up")
            elapsed_s = time.perf_counter() - started
            cpu_s = running.broker_cpu_s() - cpu_s
            rates.append(GIB / elapsed_s / 1e6)
            print(
                f"caught up at {rates[-1]:.0f} MB/s, {cpu_s / (GIB / 1e9):.2f} broker CPU s/GB; the disk takes"
                f" {written:.0f} MB/s, {synced:.0f} MB/s until it is synced; loopback TCP {tcp:.0f} MB/s",
                flush=True,
            )
            admin.alter_partition_reassignments({topic: [1]})
            wait_until(lambda: describe(admin, topic.topic)[topic].replicas == (1,), "the replica is gone")
            time.sleep(DELETED_S)
        print(f"median: caught up at {statistics.median(rates):.0f} MB/s", flush=True)


async def fill(address: str, topic: TopicPartition, size_bytes: int) -> None:
    """Prepared batches into one partition."""
    batch, _ = prepared_batch(BATCH_BYTES)
    part = ProducePartition(topic=topic.topic, partition=topic.partition, records_bytes=len(batch))
    request = encode_framed(ProduceHeader(acks=-1, timeout_ms=30_000, partitions=[part]), [batch])
    async with aio.insecure_channel(address) as channel:
        for _ in range(-(-size_bytes // len(batch))):
            answer = (await RawStub(channel, BROKER).produce(request)).partitions[0]
            assert not answer.error_code, answer


# partitions


def measure_partitions(options: argparse.Namespace) -> None:
    with cluster(controllers=3) as running, running.admin() as admin:
        empty_mb = {member: member.rss_mb() for member in running.members}
        started = time.perf_counter()
        topics = [f"many-{number}" for number in range(TOPICS)]
        admin.create_topics([NewTopic(topic, PARTITIONS_PER_TOPIC, 3) for topic in topics], timeout_ms=120_000)
        everywhere = [TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS_PER_TOPIC)]
        with Producer(bootstrap_servers=running.bootstrap, acks="all") as producer:
            acknowledge_in(producer, everywhere, lambda: None)
            took_s = time.perf_counter() - started
            print(f"{len(everywhere):,} partitions created and a record in each after {took_s:.1f} s", flush=True)
            for topic in topics:
                wait_whole(admin, topic)
            report_idle(running, empty_mb)
            led = [tp for topic in topics for tp, one in describe(admin, topic).items() if one.leader == 1]
            acknowledged_s = acknowledge_in(producer, led, lambda: running.brokers[1].end(signal.SIGKILL))
        first_s, half_s, last_s = acknowledged_s[0], statistics.median(acknowledged_s), acknowledged_s[-1]
        print(
            f"broker 1 killed; of {len(led)} partitions that it led the first took a record after {first_s:.2f} s,"
            f" half after {half_s:.2f} s, the last after {last_s:.2f} s",
            flush=True,
        )


def report_idle(running: Cluster, empty_mb: dict[ServerProcess, float]) -> None:
    """Prints the memory and CPU time of every process while no client produces."""
    time.sleep(10)
    before = {member: member.cpu_s() for member in running.members}
    time.sleep(IDLE_S)
    for member in running.members:
        percent = (member.cpu_s() - before[member]) / IDLE_S * 100
        print(
            f"{member.spec.name:14} {member.rss_mb():4.0f} MB resident ({empty_mb[member]:.0f} without partitions),"
            f" idle {percent:.1f}% of a core",
            flush=True,
        )


def acknowledge_in(producer: Producer, partitions: list[TopicPartition], begin: Callable[[], object]) -> list[float]:
    """Calls `begin` and sends a record to each partition. Returns the seconds until each is acknowledged, in order."""
    done_s: list[float] = []
    all_done = threading.Event()

    def on_delivery(metadata: object, error: Exception | None) -> None:
        assert error is None, error
        done_s.append(time.perf_counter())
        if len(done_s) == len(partitions):
            all_done.set()

    started = time.perf_counter()
    begin()
    for tp in partitions:
        producer.send(tp.topic, RECORD, partition=tp.partition, on_delivery=on_delivery)
    assert all_done.wait(120), f"{len(done_s)} of {len(partitions)}"
    return [done - started for done in done_s]


MEASUREMENTS = {
    "costs": measure_costs,
    "catch-up": measure_catch_up,
    "partitions": measure_partitions,
    "shutdown": measure_shutdown,
    "fail-over": measure_fail_over,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=MEASUREMENTS, action="append", help="may be given several times")
    parser.add_argument("--gigabytes", type=float, default=0.5, help="of one run of the costs")
    parser.add_argument("--singles", type=int, default=1_000, help="single records of each kind")
    parser.add_argument("--runs", type=int, default=5, help="of the costs, and of the catch-up")
    parser.add_argument("--shutdowns", type=int, default=6)
    parser.add_argument("--stream-partitions", type=int, default=300, help="of the second series of shutdowns")
    parser.add_argument("--kills", type=int, default=20)
    options = parser.parse_args()
    print("load average before: {:.1f} {:.1f} {:.1f}".format(*os.getloadavg()))
    for name in options.only or MEASUREMENTS:
        print(f"# {name}", flush=True)
        MEASUREMENTS[name](options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
