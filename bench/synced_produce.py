"""Produce requests to a topic with `flush.messages=1`, which are answered when their record is on disk, beside Kafka.

    python bench/synced_produce.py [--seconds 5] [--rounds 3] [--before DIRECTORY]

Plain sockets send prepared requests of one record of 1 KiB. Cells: one request at a time, 16 connections with one
request each to one partition, and one connection with 16 requests under way to 12 partitions. Meanwhile another
connection sends one request at a time to a topic without `flush.messages`. Its latency shows what the syncs cost other
clients of the broker. The sides take turns, in random order. `--before` adds the server of another checkout.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import random
import statistics
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from bench.kafka_produce import PARTITIONS, RECORD_BYTES, Connection, request_of
from bench.peer_servers import Peer, kafka, klamm
from bench.peer_workload import create_topic, first_produce
from klamm.records.encoder import encode_batch

SYNCED, PLAIN = "synced", "plain"
READY_S = 60


class Cell(NamedTuple):
    """One kind of load."""

    name: str
    connections: int
    depth: int
    partitions: int


CELLS = [
    Cell("one at a time", 1, 1, 1),
    Cell("16 connections, one partition", 16, 1, 1),
    Cell("one connection, 16 under way, 12 partitions", 1, 16, PARTITIONS),
]


class Run(NamedTuple):
    """The figures of one run."""

    requests_per_s: float
    p50_ms: float
    p99_ms: float
    others_p99_ms: float
    """The latency of requests to the other topic."""


class Ping(threading.Thread):
    """Sends one request at a time to the topic without `flush.messages`."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._connection = Connection(bootstrap)
        self._is_over = threading.Event()
        self.latencies_ms: list[float] = []

    def run(self) -> None:
        request = _requests(PLAIN, 1)[0]
        while not self._is_over.wait(0.005):
            started_s = time.perf_counter()
            self._connection.send(request)
            self._connection.answer()
            self.latencies_ms.append((time.perf_counter() - started_s) * 1000)

    def end(self) -> None:
        self._is_over.set()
        self.join()
        self._connection.close()


def _requests(topic: str, partitions: int) -> list[bytes]:
    batch = bytes(encode_batch([(int(time.time() * 1000), None, bytes(RECORD_BYTES), ())]))
    return [request_of(batch, partition, -1, topic) for partition in range(partitions)]


def measure(peer: Peer, cell: Cell, seconds: float) -> Run:
    """Keeps `depth` requests under way on each connection."""
    requests = _requests(SYNCED, cell.partitions)
    connections = [Connection(peer.bootstrap) for _ in range(cell.connections)]
    ping = Ping(peer.bootstrap)
    latencies_ms: list[float] = []
    sent: deque[tuple[Connection, float]] = deque()
    number = 0

    def send(connection: Connection) -> None:
        nonlocal number
        sent.append((connection, time.perf_counter()))
        connection.send(requests[number % len(requests)])
        number += 1

    ping.start()
    for connection in connections * cell.depth:
        send(connection)
    end_s = time.perf_counter() + seconds
    while sent:
        connection, started_s = sent.popleft()
        connection.answer()
        now_s = time.perf_counter()
        latencies_ms.append((now_s - started_s) * 1000)
        if now_s < end_s:
            send(connection)
    ping.end()
    for connection in connections:
        connection.close()
    return Run(
        len(latencies_ms) / seconds,
        statistics.median(latencies_ms),
        _p99(latencies_ms),
        _p99(ping.latencies_ms),
    )


def _p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


@contextlib.contextmanager
def served(peer: Peer) -> Iterator[Peer]:
    admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 4})
    topic = NewTopic(SYNCED, num_partitions=PARTITIONS, replication_factor=1, config={"flush.messages": "1"})
    admin.create_topics([topic], operation_timeout=30)[SYNCED].result(READY_S)
    create_topic(peer.bootstrap, PLAIN, 1, 1)
    for name in (SYNCED, PLAIN):
        first_produce(peer.bootstrap, name, READY_S)
    time.sleep(2)  # every partition has a leader
    yield peer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", type=pathlib.Path, help="another checkout, in which `make setup` was run")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        scratch = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="klamm-bench-")))
        servers = {"klamm": klamm(scratch), "kafka": kafka(scratch)}
        if options.before is not None:
            servers["before"] = klamm(scratch / "before", checkout=options.before)
        sides = {name: stack.enter_context(served(stack.enter_context(server))) for name, server in servers.items()}
        for side in sides.values():
            measure(side, CELLS[-1], options.seconds)
        print(
            "| load | side | requests/s | p50 ms | p99 ms | p99 ms of others |\n|---|---|---|---|---|---|", flush=True
        )
        for cell in CELLS:
            runs: dict[str, list[Run]] = {name: [] for name in sides}
            for _ in range(options.rounds):
                for name in random.sample(list(sides), len(sides)):
                    runs[name].append(measure(sides[name], cell, options.seconds))
            for name, measured in runs.items():
                rate, *latencies = (statistics.median(column) for column in zip(*measured, strict=True))
                shown = " | ".join(f"{latency:.2f}" for latency in latencies)
                print(f"| {cell.name} | {name} | {rate:,.0f} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
