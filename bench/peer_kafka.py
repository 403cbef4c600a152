"""Klamm beside Apache Kafka: the same librdkafka client, topics and settings.

Both run at the same time, and the one that is not measured is idle. The first pairs of a grid warm both up and do not
count.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from bench.peer_figures import Figures, Row, at_rest, in_turns, rows
from bench.peer_servers import Peer, both, format_kafka, klamm, start_kafka
from bench.peer_workload import (
    Load,
    consume,
    create_topic,
    delete_topic,
    first_produce,
    in_a_process,
    latencies,
    produce_and_replicate,
)
from bench.secured_peers import STARTS, TOPICS
from bench.servers import compile_klamm, free_port

KIB = 1024
RUN_BYTES = {100: 150_000_000, KIB: 1_000_000_000, 10 * KIB: 1_000_000_000}
"""The bytes of records in one run, by the size of its records. A shorter run would measure how it begins."""
START_S = 60
COMPUTING_PER_CORE = 5
PLAINTEXT: Mapping[str, str] = {}
Running = contextlib.AbstractContextManager[tuple[Peer, Peer]]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One row of the grid."""

    size_bytes: int
    partitions: int
    settings: str
    acks: str = "all"
    replicas: int = 1

    @property
    def label(self) -> str:
        size = f"{self.size_bytes} B" if self.size_bytes < KIB else f"{self.size_bytes // KIB} KiB"
        return f"{size}, {self.settings}, {self.partitions} partitions, {self.replicas} replicas, acks={self.acks}"


SINGLE = [
    *(
        Cell(size_bytes=size, partitions=12, settings=settings)
        for size in (100, KIB, 10 * KIB)
        for settings in ("defaults", "16k", "tuned")
    ),
    Cell(size_bytes=KIB, partitions=1, settings="defaults"),
    Cell(size_bytes=KIB, partitions=1, settings="tuned"),
    Cell(size_bytes=KIB, partitions=100, settings="defaults"),
    Cell(size_bytes=KIB, partitions=100, settings="tuned"),
    Cell(size_bytes=KIB, partitions=12, settings="tuned", acks="1"),
]
CLUSTER = [
    *(
        Cell(size_bytes=KIB, partitions=12, settings=settings, acks=acks, replicas=3)
        for settings in ("defaults", "tuned")
        for acks in ("1", "all")
    ),
    Cell(size_bytes=100, partitions=12, settings="tuned", replicas=3),
    Cell(size_bytes=10 * KIB, partitions=12, settings="tuned", replicas=3),
]
QUICK = [
    Cell(size_bytes=100, partitions=12, settings="defaults"),
    Cell(size_bytes=KIB, partitions=12, settings="16k"),
    Cell(size_bytes=KIB, partitions=12, settings="tuned"),
]


def throughput(peer: Peer, cell: Cell, load: Load) -> Figures:
    """Produces a topic, consumes it when all replicas have it, and deletes it."""
    load = replace(load, topic=f"{TOPICS}{time.monotonic_ns()}")
    create_topic(peer.bootstrap, load.topic, cell.partitions, cell.replicas, load.security)
    os.sync()
    size_gb = load.count * load.size_bytes / 1e9
    figures: Figures = {}
    cpu_s = peer.cpu_s()
    acknowledged_s, readable_s = in_a_process(produce_and_replicate, peer.bootstrap, load)
    figures["produce, MB/s"] = size_gb * 1000 / acknowledged_s
    figures["produce until readable, MB/s"] = size_gb * 1000 / readable_s
    figures["produce, server CPU s/GB"] = (peer.cpu_s() - cpu_s) / size_gb
    cpu_s = peer.cpu_s()
    figures["consume, MB/s"] = size_gb * 1000 / in_a_process(consume, peer.bootstrap, load)
    figures["consume, server CPU s/GB"] = (peer.cpu_s() - cpu_s) / size_gb
    figures["resident after, MB"] = peer.rss_mb()
    delete_topic(peer.bootstrap, load.topic, load.security)
    return figures


def measure_grid(
    cells: list[Cell], running: Running, options: argparse.Namespace, security: Mapping[str, str] = PLAINTEXT
) -> Iterator[Row]:
    """`security` is how the clients get in, for librdkafka."""
    with running as peers:
        wait_until_served(peers, security)
        chosen = [cell for cell in cells if options.cells in cell.label]
        for number, cell in enumerate(chosen):
            count = RUN_BYTES[cell.size_bytes] // cell.size_bytes // (4 if options.quick else 1)
            load = Load(
                topic="",
                partitions=cell.partitions,
                size_bytes=cell.size_bytes,
                count=count,
                acks=cell.acks,
                settings=cell.settings,
                security=security,
            )

            def measure(peer: Peer, cell: Cell = cell, load: Load = load) -> Figures:
                return throughput(peer, cell, load)

            if number == 0:
                in_turns(peers, 2, measure)
            yield from rows(in_turns(peers, options.pairs, measure), cell.label)


def wait_until_served(peers: tuple[Peer, Peer], security: Mapping[str, str] = PLAINTEXT) -> None:
    for peer in peers:
        in_a_process(first_produce, peer.bootstrap, f"{TOPICS}ready", START_S, security)


def measure_single(options: argparse.Namespace) -> Iterator[Row]:
    return measure_grid(QUICK if options.quick else SINGLE, both(1), options)


def measure_cluster(options: argparse.Namespace) -> Iterator[Row]:
    return measure_grid(CLUSTER[-3:-2] if options.quick else CLUSTER, both(3), options)


def measure_tls(options: argparse.Namespace) -> Iterator[Row]:
    """Measures the grid of one node with clients that come by TLS 1.3."""
    with (
        tempfile.TemporaryDirectory(prefix="klamm-peers-", ignore_cleanup_errors=True) as scratch,
        STARTS["klamm"](pathlib.Path(scratch, "klamm"), has_authorizer=False) as ours,
        STARTS["kafka"](pathlib.Path(scratch, "kafka"), has_authorizer=False) as theirs,
    ):
        running = contextlib.nullcontext((ours.at("SSL"), theirs.at("SSL")))
        yield from measure_grid(QUICK if options.quick else SINGLE, running, options, ours.client("SSL"))


def measure_latency(options: argparse.Namespace) -> Iterator[Row]:
    """Measures the latency at two fixed rates, and at half of the rate that both can produce and consume with client
    defaults."""
    seconds = 5 if options.quick else 10
    with both(1) as peers:
        wait_until_served(peers)
        cell = Cell(size_bytes=100, partitions=1, settings="defaults")
        load = Load(topic="", partitions=1, size_bytes=100, count=1_000_000, acks="all", settings="defaults")
        fastest = in_turns(peers, 2, lambda peer: throughput(peer, cell, load))
        slowest = min(max(runs) for verb in ("produce", "consume") for runs in fastest[f"{verb}, MB/s"])
        half = int(slowest * 1e6 / 100 / 2)
        for rate, linger in ((1_000, 0), (10_000, 0), (half, 5)):
            yield from latency_rows(peers, rate, linger, seconds, options.pairs)


def measure_busy(options: argparse.Namespace) -> Iterator[Row]:
    """Measures the latency at a fixed rate beside processes that only compute, five for each core."""
    seconds = 5 if options.quick else 10
    with both(1) as peers:
        wait_until_served(peers)
        in_turns(peers, 2, lambda peer: latency(peer, 1_000, 0, seconds))
        with computing(COMPUTING_PER_CORE * (os.cpu_count() or 1)):
            yield from latency_rows(peers, 1_000, 0, seconds, options.pairs)


def latency(peer: Peer, rate: int, linger_ms: int, seconds: float) -> Figures:
    topic = f"latency-{rate}-{time.monotonic_ns()}"
    create_topic(peer.bootstrap, topic, 1, 1)
    return latencies(peer.bootstrap, topic, rate, seconds, {"linger.ms": linger_ms})


def latency_rows(peers: tuple[Peer, Peer], rate: int, linger_ms: int, seconds: float, pairs: int) -> Iterator[Row]:
    found = in_turns(peers, pairs, lambda peer: latency(peer, rate, linger_ms, seconds))
    for percentile, (ours, theirs) in found.items():
        yield Row(f"latency {percentile} at {rate:,}/s, linger.ms={linger_ms}", "ms", ours, theirs)


@contextlib.contextmanager
def computing(count: int) -> Iterator[None]:
    """Runs processes that only compute during the block."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measure_footprint(options: argparse.Namespace) -> Iterator[Row]:
    """Measures the time from the start command to the first acknowledged record, and the memory a while later. The
    directories are empty."""
    compile_klamm()

    def measure(name: str) -> Figures:
        with tempfile.TemporaryDirectory(prefix="klamm-peers-", ignore_cleanup_errors=True) as scratch:
            return (start_klamm if name == "klamm" else start_one_kafka)(pathlib.Path(scratch))

    return rows(in_turns(("klamm", "kafka"), options.pairs, measure))


def start_klamm(directory: pathlib.Path) -> Figures:
    started_s = time.monotonic()
    with klamm(directory) as peer:
        return at_rest(peer, started_s, first_produce(peer.bootstrap, "first", START_S))


def start_one_kafka(directory: pathlib.Path) -> Figures:
    ports = [(free_port(), free_port())]
    config = format_kafka(directory, 1, ports)
    started_s = time.monotonic()
    with start_kafka([config], ports) as peer:
        return at_rest(peer, started_s, first_produce(peer.bootstrap, "first", START_S))
