"""What a produce request costs the broker through its Kafka listener, whatever it carries: CPU time, user and system.

    python bench/kafka_produce.py [--requests 30000] [--runs 3] [--only "16 KiB, 16 under way"]

One connection of a plain socket sends prepared requests of one batch each to `klamm up`, in turns to 12 partitions,
`depth` of them under way. There is no client to be measured with it, so CPU seconds of the server are what counts; the
requests a second are those of two processes on one machine. Every answer is checked, and the offsets must add up.
"""

from __future__ import annotations

import argparse
import pathlib
import socket
import ssl
import statistics
import struct
import tempfile
import time
from typing import NamedTuple

from bench.peer_servers import Peer, klamm
from bench.peer_workload import create_topic, first_produce
from klamm.records.encoder import encode_batch

TOPIC = "requests"
PARTITIONS = 12
PRODUCE_VERSION = 10
"""librdkafka's."""
RECORD_BYTES = 1_000
ANSWER_PARTITION = struct.Struct(">ihq")
READY_S = 60


class Load(NamedTuple):
    """One kind of request."""

    name: str
    batch_bytes: int
    depth: int
    acks: int


LOADS = [
    Load("16 KiB, 16 under way, acks=all", 16_384, 16, -1),
    Load("16 KiB, 16 under way, acks=1", 16_384, 16, 1),
    Load("1 KiB, 16 under way, acks=all", 1_100, 16, -1),
    Load("1 KiB, one at a time, acks=all", 1_100, 1, -1),
]


class Cost(NamedTuple):
    """CPU time of one request, and how many are answered in a second."""

    user_us: float
    system_us: float
    requests_per_s: float


def request_of(batch: bytes, partition: int, acks: int, topic_name: str = TOPIC) -> bytes:
    """A frame of Produce. Its header has tagged fields, its lengths are compact (KIP-482)."""
    topic = topic_name.encode()
    head = struct.pack(">hhih", 0, PRODUCE_VERSION, partition, 5) + b"bench" + b"\0"
    body = b"\0" + struct.pack(">hi", acks, 10_000) + b"\2" + _varint(len(topic) + 1) + topic
    body += b"\2" + struct.pack(">i", partition) + _varint(len(batch) + 1) + batch + b"\0\0\0"
    return struct.pack(">i", len(head) + len(body)) + head + body


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


class Connection:
    """A blocking one, with TLS where there is a context."""

    def __init__(self, bootstrap: str, context: ssl.SSLContext | None = None) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            self._socket = context.wrap_socket(self._socket)
        self._unread = b""

    def send(self, requests: bytes) -> None:
        self._socket.sendall(requests)

    def answer(self) -> int:
        """The base offset that the next answer has."""
        answer = self.whole_answer()
        # Correlation id, no tags, one topic, its name after the name's length plus 1, one partition.
        _, code, base_offset = ANSWER_PARTITION.unpack_from(answer, 4 + 1 + 1 + answer[6] + 1)
        assert code == 0, code
        return int(base_offset)

    def whole_answer(self) -> bytes:
        """The next one, from its correlation id on."""
        (size,) = struct.unpack(">i", self._take(4))
        return self._take(size)

    def close(self) -> None:
        self._socket.close()

    def _take(self, size: int) -> bytes:
        while len(self._unread) < size:
            more = self._socket.recv(1 << 16)
            assert more, "the connection was closed"
            self._unread += more
        taken, self._unread = self._unread[:size], self._unread[size:]
        return taken


def measure(peer: Peer, load: Load, count: int, context: ssl.SSLContext | None = None, topic: str = TOPIC) -> Cost:
    """Measures `count` requests. They are sent together, as many as may be in flight. The next ones follow when half of
    them are answered."""
    records = max(1, (load.batch_bytes - 61) // (RECORD_BYTES + 12))
    # Retention would delete older ones.
    batch = bytes(encode_batch([(int(time.time() * 1000), None, bytes(RECORD_BYTES), ())] * records))
    requests = [request_of(batch, partition, load.acks, topic) for partition in range(PARTITIONS)]
    half = max(1, load.depth // 2)
    chunks = [
        b"".join(requests[(start + number) % PARTITIONS] for number in range(half))
        for start in range(0, PARTITIONS * half, half)
    ]
    connection = Connection(peer.bootstrap, context)
    for request in requests:
        connection.send(request)
    first = [connection.answer() for _ in requests]
    rounds = count // half // PARTITIONS * PARTITIONS
    assert rounds, f"{count} requests; expected at least {half * PARTITIONS}"
    before, started_s = peer.started[0].cpu_times(), time.perf_counter()
    for number in range(rounds):
        connection.send(chunks[number % PARTITIONS])
        if number or load.depth == 1:
            last = [connection.answer() for _ in range(half)]
    if load.depth > 1:
        last = [connection.answer() for _ in range(half)]
    connection.close()
    took_s, after = time.perf_counter() - started_s, peer.started[0].cpu_times()
    total = rounds * half
    # Every partition has had as many; the last answer is of the last one that the chunks name.
    assert last[-1] == first[(total - 1) % PARTITIONS] + total // PARTITIONS * records, (first, last, total)
    user_s, system_s = after.user - before.user, after.system - before.system
    return Cost(user_s / total * 1e6, system_s / total * 1e6, total / took_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=30_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="those whose name has this")
    options = parser.parse_args()
    print("| request | user us | system us | both | requests/s |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as scratch, klamm(pathlib.Path(scratch)) as peer:
        create_topic(peer.bootstrap, TOPIC, PARTITIONS, 1)
        first_produce(peer.bootstrap, TOPIC, READY_S)
        for load in LOADS:
            if options.only not in load.name:
                continue
            measure(peer, load, options.requests // 10)
            runs = [measure(peer, load, options.requests) for _ in range(options.runs)]
            user_us, system_us, rate = (statistics.median(column) for column in zip(*runs, strict=True))
            print(
                f"| {load.name} | {user_us:.1f} | {system_us:.1f} | {user_us + system_us:.1f} | {rate:,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
