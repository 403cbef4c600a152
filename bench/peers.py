"""Klamm beside Apache Kafka: one machine, one client, the same topics and settings, in turns.

Run: make bench-peers, or python bench/peers.py [--only single,cluster] [--cells "1 KiB, tuned"] [--quick]

Both run at the same time, and whoever is not measured is idle. In each pair first one is measured and then the other;
the next pair begins with the other one. Figures are medians; a ratio is Klamm's median by Kafka's, so more than 1 is
better for throughput and less than 1 for everything else. The first pairs of a grid warm both up and do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import psutil
from peer_servers import Peer, both, format_kafka, idle_s, klamm, start_kafka
from peer_workload import (
    Load,
    consume,
    create_topic,
    delete_topic,
    first_produce,
    in_a_process,
    latencies,
    produce,
)
from servers import free_port

KIB = 1024
RUN_BYTES = {100: 150_000_000, KIB: 500_000_000, 10 * KIB: 600_000_000}
"""What one run moves, by the size of its records."""
IDLE_S = 10
START_S = 60
Figures = dict[str, float]


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


@dataclass(frozen=True)
class Row:
    """What came of one thing that was measured: every run's figure, of both."""

    name: str
    unit: str
    ours: list[float]
    theirs: list[float]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ours) / statistics.median(self.theirs)

    def line(self) -> str:
        """A line of a Markdown table."""
        ours, theirs = (
            f"{statistics.median(runs):,.4g} ({min(runs):,.4g} to {max(runs):,.4g})"
            for runs in (self.ours, self.theirs)
        )
        return f"| {self.name} | {self.unit} | {ours} | {theirs} | {self.ratio:.2f} |"


def in_turns(
    peers: tuple[Peer, Peer], pairs: int, measure: Callable[[Peer], Figures]
) -> dict[str, tuple[list[float], ...]]:
    """Every figure's runs, of the first peer and of the second."""
    runs: tuple[list[Figures], list[Figures]] = ([], [])
    for number in range(pairs):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            runs[side].append(measure(peers[side]))
    return {name: tuple([run[name] for run in side] for side in runs) for name in runs[0][0]}


def throughput(peer: Peer, cell: Cell, load: Load) -> Figures:
    """Produces a topic, consumes it, and deletes it."""
    load = replace(load, topic=f"peers-{time.monotonic_ns()}")
    create_topic(peer.bootstrap, load.topic, cell.partitions, cell.replicas)
    os.sync()
    size_gb = load.count * load.size_bytes / 1e9
    figures: Figures = {}
    for verb, work in (("produce", produce), ("consume", consume)):
        cpu_s = peer.cpu_s()
        took_s = in_a_process(work, peer.bootstrap, load)
        figures[f"{verb}, MB/s"] = size_gb * 1000 / took_s
        figures[f"{verb}, server CPU s/GB"] = (peer.cpu_s() - cpu_s) / size_gb
    figures["resident after, MB"] = peer.rss_mb()
    delete_topic(peer.bootstrap, load.topic)
    return figures


def measure_grid(cells: list[Cell], nodes: int, options: argparse.Namespace) -> Iterator[Row]:
    with both(nodes) as peers:
        wait_until_served(peers)
        chosen = [cell for cell in cells if options.cells in cell.label]
        for number, cell in enumerate(chosen):
            count = RUN_BYTES[cell.size_bytes] // cell.size_bytes // (4 if options.quick else 1) // cell.replicas
            load = Load(
                topic="",
                partitions=cell.partitions,
                size_bytes=cell.size_bytes,
                count=count,
                acks=cell.acks,
                settings=cell.settings,
            )

            def measure(peer: Peer, cell: Cell = cell, load: Load = load) -> Figures:
                return throughput(peer, cell, load)

            if number == 0:
                in_turns(peers, 2, measure)
            for name, (ours, theirs) in in_turns(peers, options.pairs, measure).items():
                what, _, unit = name.partition(", ")
                yield Row(f"{what}: {cell.label}", unit, ours, theirs)


def wait_until_served(peers: tuple[Peer, Peer]) -> None:
    for peer in peers:
        in_a_process(first_produce, peer.bootstrap, "ready", START_S)


def measure_single(options: argparse.Namespace) -> Iterator[Row]:
    return measure_grid(QUICK if options.quick else SINGLE, 1, options)


def measure_cluster(options: argparse.Namespace) -> Iterator[Row]:
    return measure_grid(CLUSTER[-3:-2] if options.quick else CLUSTER, 3, options)


def measure_latency(options: argparse.Namespace) -> Iterator[Row]:
    """At two fixed rates, and at half of what both can produce and consume with client defaults."""
    seconds = 5 if options.quick else 10
    with both(1) as peers:
        wait_until_served(peers)
        cell = Cell(size_bytes=100, partitions=1, settings="defaults")
        load = Load(topic="", partitions=1, size_bytes=100, count=1_000_000, acks="all", settings="defaults")
        fastest = in_turns(peers, 2, lambda peer: throughput(peer, cell, load))
        slowest = min(max(runs) for verb in ("produce", "consume") for runs in fastest[f"{verb}, MB/s"])
        half = int(slowest * 1e6 / 100 / 2)
        for rate, linger in ((1_000, 0), (10_000, 0), (half, 5)):
            topics = f"latency-{rate}"

            def measure(peer: Peer, rate: int = rate, linger: int = linger, topic: str = topics) -> Figures:
                name = f"{topic}-{time.monotonic_ns()}"
                create_topic(peer.bootstrap, name, 1, 1)
                return latencies(peer.bootstrap, name, rate, seconds, {"linger.ms": linger})

            for percentile, (ours, theirs) in in_turns(peers, options.pairs, measure).items():
                yield Row(f"latency {percentile} at {rate:,}/s, linger.ms={linger}", "ms", ours, theirs)


def measure_footprint(options: argparse.Namespace) -> Iterator[Row]:
    """From the start command to the first acknowledged record, and memory ten seconds later, on empty directories."""
    runs: dict[str, list[Figures]] = {"klamm": [], "kafka": []}
    for _ in range(options.pairs):
        for name, start in (("klamm", start_klamm), ("kafka", start_one_kafka)):
            with tempfile.TemporaryDirectory(prefix="klamm-peers-", ignore_cleanup_errors=True) as scratch:
                runs[name].append(start(pathlib.Path(scratch)))
    for name in runs["klamm"][0]:
        what, _, unit = name.partition(", ")
        yield Row(what, unit, *([run[name] for run in runs[side]] for side in ("klamm", "kafka")))


def start_klamm(directory: pathlib.Path) -> Figures:
    started_s = time.monotonic()
    with klamm(directory) as peer:
        return started(peer, started_s)


def start_one_kafka(directory: pathlib.Path) -> Figures:
    ports = [(free_port(), free_port())]
    config = format_kafka(directory, 1, ports)
    started_s = time.monotonic()
    with start_kafka([config], ports) as peer:
        return started(peer, started_s)


def started(peer: Peer, started_s: float) -> Figures:
    first_s = first_produce(peer.bootstrap, "first", START_S)
    idle_s(IDLE_S)
    cpu_s = peer.cpu_s()
    idle_s(IDLE_S)
    return {
        "start to first acknowledged produce, s": first_s - started_s,
        "resident when idle, MB": peer.rss_mb(),
        "CPU when idle, % of a core": (peer.cpu_s() - cpu_s) / IDLE_S * 100,
    }


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "single": measure_single,
    "cluster": measure_cluster,
    "latency": measure_latency,
    "footprint": measure_footprint,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--cells", default="", help="only those of the grids whose description has this")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a small part of the grid, with less data")
    parser.add_argument("--output", type=pathlib.Path, help="every run's figures, as JSON")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    print(f"{platform.platform()}, {psutil.cpu_count()} CPUs, load before {os.getloadavg()[0]:.1f}\n", flush=True)
    print("| what | | Klamm | Kafka | Klamm/Kafka |\n|---|---|---|---|---|", flush=True)
    rows = []
    for part in wanted:
        for row in PARTS[part](options):
            print(row.line(), flush=True)
            rows.append(row)
    if options.output:
        options.output.write_text(json.dumps([{**vars(row), "ratio": row.ratio} for row in rows], indent=1))


if __name__ == "__main__":
    sys.exit(main())
