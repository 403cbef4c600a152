"""What incremental fetch sessions (KIP-227) save: one consumer of many partitions, few of which have news.

Run: python bench/fetch_sessions.py [--partitions 1000] [--busy 10] [--peers klamm,kafka]

The consumer is a plain socket. It fetches without a session, naming every partition every time as librdkafka does, and
then in one, naming only what it has read on in. A producer writes single records of 100 B to the busy partitions all
the while. CPU is the servers', per fetch and per second of the consumer's time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import pathlib
import socket
import struct
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.peer_servers import Peer, Start, kafka, klamm
from bench.peer_workload import create_topic, first_produce, in_a_process, make_producer

STARTS: dict[str, Start] = {"klamm": klamm, "kafka": kafka}
FETCH, FETCH_VERSION = 1, 11
NO_SESSION, FINAL_EPOCH = 0, -1
WAIT_MS = 500
RATE = 100
TOPIC = "many"
_HEAD = struct.Struct(">iiiibii")
_ASKED = struct.Struct(">iiqqi")
_ANSWERED = struct.Struct(">ihqqqi")
"""Partition, error code, high watermark, last stable offset, log start offset, aborted transactions."""


@dataclass
class Consumer:
    """A consumer that continues at the high watermark of each answer."""

    connection: socket.socket
    in_session: bool
    offsets: dict[int, int]
    session_id: int = NO_SESSION
    epoch: int = FINAL_EPOCH
    changed: set[int] = field(default_factory=set)
    sent_bytes: int = 0
    received_bytes: int = 0

    def fetch(self) -> int:
        """Fetches once, and returns the number of partitions that answered an error."""
        request = self._request()
        self.connection.sendall(request)
        (size,) = struct.unpack(">i", self._receive(4))
        answer = self._receive(size)
        self.sent_bytes += len(request)
        self.received_bytes += 4 + size
        return self._take(answer)

    def _request(self) -> bytes:
        epoch = self.epoch if self.in_session else FINAL_EPOCH
        named = sorted(self.changed) if self.in_session and epoch > 0 else self.offsets
        name = TOPIC.encode()
        body = _HEAD.pack(-1, WAIT_MS, 1, 52_428_800, 0, self.session_id, epoch)
        body += (
            struct.pack(">ih", 1, len(name)) + name + struct.pack(">i", len(named)) if named else struct.pack(">i", 0)
        )
        body += b"".join(_ASKED.pack(number, -1, self.offsets[number], -1, 1_048_576) for number in named)
        message = struct.pack(">hhih", FETCH, FETCH_VERSION, 1, -1) + body + struct.pack(">ih", 0, 0)
        return struct.pack(">i", len(message)) + message

    def _take(self, answer: bytes) -> int:
        _, _, code, session_id, topics = struct.unpack_from(">iihii", answer)
        assert code == 0, code
        if self.in_session:
            assert session_id != NO_SESSION, "the broker gave no session"
            self.session_id = session_id
            self.epoch += 1
        self.changed.clear()
        failed = 0
        for number, code, high_watermark in partitions_of(answer, 18 + 2 + len(TOPIC)) if topics else ():
            failed += bool(code)
            if not code and self.offsets[number] != high_watermark:
                self.offsets[number] = high_watermark
                self.changed.add(number)
        return failed

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            more = self.connection.recv(size - len(received))
            assert more, "the broker closed the connection"
            received += more
        return bytes(received)


def partitions_of(answer: bytes, position: int) -> Iterator[tuple[int, int, int]]:
    """Number, error code and high watermark of each partition of an answer's one topic."""
    (count,) = struct.unpack_from(">i", answer, position)
    position += 4
    for _ in range(count):
        number, code, high_watermark, _, _, aborted = _ANSWERED.unpack_from(answer, position)
        position += _ANSWERED.size + 16 * max(0, aborted) + 4
        (size,) = struct.unpack_from(">i", answer, position)
        position += 4 + max(0, size)
        yield number, code, high_watermark


def produce_slowly(bootstrap: str, busy: int) -> None:
    """Produces records until the process ends."""
    producer = make_producer(bootstrap, "all", {"linger.ms": 0})
    number = 0
    while True:
        producer.produce(TOPIC, bytes(100), partition=number % busy)
        producer.poll(1 / RATE)
        time.sleep(1 / RATE)
        number += 1


def wait_until_served(peer: Peer, partitions: int) -> None:
    """Waits until every partition has its log and its leader."""
    port = int(peer.bootstrap.rpartition(":")[2])
    deadline_s = time.monotonic() + 60
    with socket.create_connection(("127.0.0.1", port)) as connection:
        consumer = Consumer(connection, False, dict.fromkeys(range(partitions), 0))
        while consumer.fetch():
            assert time.monotonic() < deadline_s, "not all partitions are served after a minute"
            time.sleep(0.1)


def consume(peer: Peer, partitions: int, seconds: float, *, in_session: bool) -> None:
    port = int(peer.bootstrap.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        consumer = Consumer(connection, in_session, dict.fromkeys(range(partitions), 0), epoch=0)
        consumer.fetch()
        consumer.sent_bytes = consumer.received_bytes = fetches = 0
        cpu_s, started_s = peer.cpu_s(), time.monotonic()
        while time.monotonic() - started_s < seconds:
            failed = consumer.fetch()
            assert not failed, f"{failed} partitions answered an error"
            fetches += 1
        took_s, cpu_s = time.monotonic() - started_s, peer.cpu_s() - cpu_s
    print(
        f"{peer.name}, {partitions} partitions, {'in a session' if in_session else 'without session'}:"
        f" {fetches / took_s:.0f} fetches/s, {consumer.sent_bytes / fetches:,.0f} B asked and"
        f" {consumer.received_bytes / fetches:,.0f} B answered each, server CPU {cpu_s / fetches * 1000:.2f} ms each,"
        f" {cpu_s / took_s * 100:.0f}% of a core",
        flush=True,
    )


def measure(peer: Peer, options: argparse.Namespace) -> None:
    in_a_process(first_produce, peer.bootstrap, "ready", 60)
    create_topic(peer.bootstrap, TOPIC, options.partitions, 1)
    wait_until_served(peer, options.partitions)
    context = multiprocessing.get_context("spawn")
    producer = context.Process(target=produce_slowly, args=(peer.bootstrap, options.busy), daemon=True)
    producer.start()
    try:
        for _ in range(2):
            for in_session in (False, True):
                consume(peer, options.partitions, options.seconds, in_session=in_session)
    finally:
        producer.terminate()
        producer.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--busy", type=int, default=10, help="partitions that records come to")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--peers", default="klamm,kafka")
    options = parser.parse_args()
    for name in options.peers.split(","):
        with tempfile.TemporaryDirectory(prefix="klamm-bench-") as scratch, STARTS[name](pathlib.Path(scratch)) as peer:
            measure(peer, options)


if __name__ == "__main__":
    main()
