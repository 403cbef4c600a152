"""What a fetch costs the broker, whatever the client does with the records: CPU time and rate, beside Apache Kafka.

    python bench/kafka_fetch.py [--rounds 5] [--only "small"]

A plain socket sends the same prepared request again and again and throws the answers away. Both servers run, are
measured in a random order, and the one that is not measured is idle. A round of long fetches has 1 GB, so that its CPU
seconds are those of a GB. Its time is that of a reader that never waits for itself, as every real consumer does.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import struct
import time
from typing import NamedTuple

from bench.peer_kafka import wait_until_served
from bench.peer_servers import Peer, both
from bench.peer_workload import Load, create_topic, in_a_process, produce
from bench.turns import rounds

FETCH, FETCH_VERSION = 1, 4
PARTITIONS = 12
RECORD_BYTES = 1_024
TOPIC = "fetched"
WARM_UP_ROUNDS = 2
BUFFER_BYTES = 64 * 1024**2


class Fetch(NamedTuple):
    """One kind of request."""

    name: str
    partitions: int
    partition_max_bytes: int
    request_count: int


FETCHES = [
    Fetch("long, 12 partitions of 4 MiB", PARTITIONS, 4 * 1024**2, 20),
    Fetch("long, 1 partition of 4 MiB", 1, 4 * 1024**2, 240),
    Fetch("small, one batch", 1, 1, 10_000),
]


class Cost(NamedTuple):
    """The cost of a round."""

    cpu_s: float
    took_s: float
    received_bytes: int


def request_of(fetch: Fetch) -> bytes:
    """A frame of Fetch, of all partitions from their first record on."""
    topic = TOPIC.encode()
    body = struct.pack(">iiiibi", -1, 500, 1, BUFFER_BYTES, 0, 1)
    body += struct.pack(">h", len(topic)) + topic + struct.pack(">i", fetch.partitions)
    for partition in range(fetch.partitions):
        body += struct.pack(">iqi", partition, 0, fetch.partition_max_bytes)
    header = struct.pack(">hhih", FETCH, FETCH_VERSION, 1, 5) + b"bench"
    return struct.pack(">i", len(header) + len(body)) + header + body


def measure(peer: Peer, fetch: Fetch, buffer: memoryview) -> Cost:
    host, _, port = peer.bootstrap.rpartition(":")
    request, received_bytes = request_of(fetch), 0
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        cpu_s, started_s = peer.cpu_s(), time.perf_counter()
        for _ in range(fetch.request_count):
            connection.sendall(request)
            received_bytes += receive(connection, buffer)
        return Cost(peer.cpu_s() - cpu_s, time.perf_counter() - started_s, received_bytes)


def receive(connection: socket.socket, buffer: memoryview) -> int:
    """Receives one answer, and returns its size."""
    filled, size_bytes = 0, 4
    while filled < size_bytes:
        filled += connection.recv_into(buffer[filled:])
        if filled >= 4:
            size_bytes = 4 + int.from_bytes(buffer[:4], "big")
    assert filled == size_bytes, (filled, size_bytes)
    assert size_bytes > RECORD_BYTES, "the answer has no records"
    return size_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="those whose name has this")
    options = parser.parse_args()
    load = Load(topic=TOPIC, partitions=PARTITIONS, size_bytes=RECORD_BYTES, count=900_000, acks="all", settings="16k")
    buffer = memoryview(bytearray(BUFFER_BYTES))
    print("| fetch | server | us | server CPU us | MB/s | server CPU s/GB |\n|---|---|---|---|---|---|", flush=True)
    with both(1) as peers:
        wait_until_served(peers)
        for peer in peers:
            create_topic(peer.bootstrap, TOPIC, PARTITIONS, 1)
            in_a_process(produce, peer.bootstrap, load)
        for fetch in (one for one in FETCHES if options.only in one.name):
            costs: dict[str, list[Cost]] = {peer.name: [] for peer in peers}
            for order in rounds(peers, WARM_UP_ROUNDS + options.rounds):
                for peer in order:
                    costs[peer.name].append(measure(peer, fetch, buffer))
            for name, found in costs.items():
                print(line(fetch, name, found[WARM_UP_ROUNDS:]), flush=True)


def line(fetch: Fetch, name: str, found: list[Cost]) -> str:
    cpu_s, took_s, received_bytes = (statistics.median(column) for column in zip(*found, strict=True))
    took_us, cpu_us = (seconds / fetch.request_count * 1e6 for seconds in (took_s, cpu_s))
    rate, cpu_s_per_gb = received_bytes / took_s / 1e6, cpu_s / received_bytes * 1e9
    return f"| {fetch.name} | {name} | {took_us:,.1f} | {cpu_us:,.1f} | {rate:,.0f} | {cpu_s_per_gb:.3f} |"


if __name__ == "__main__":
    main()
