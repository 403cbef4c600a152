"""Measures how close a quota of bytes comes to its rate, and how throttled clients affect others.

    python bench/client_quotas.py [--seconds 30] [--rate 2000000] [--connections 1 10 100] [--peer kafka]

`klamm up` has a Kafka listener. `--peer kafka` measures Apache Kafka instead. For each number of connections, clients
on plain sockets produce as fast as they can under one client id, and then fetch. They obey throttle times as Kafka's
clients do, and send nothing until these are over. The time starts with the first request, so the figures include the
ten seconds' worth that a new client may use at once. Meanwhile, a neighbour without a quota produces one small batch
after the other. Its 99th percentile is shown beside the one that it has alone.
"""

from __future__ import annotations

import argparse
import asyncio
import pathlib
import statistics
import struct
import tempfile
import time
from typing import NamedTuple

from bench.kafka_produce import PRODUCE_VERSION, TOPIC, request_of
from bench.peer_servers import kafka, klamm
from bench.peer_workload import create_topic, first_produce
from klamm.records.encoder import encode_batch
from klamm_broker.kafka.api import ApiKey
from tests.support.kafka_wire import KafkaWire

BATCH_BYTES = 16_384
FETCH_VERSION = 11
READY_S = 60
CLIENT_ID = "bench"
"""The client id in the requests of the load."""


class Result(NamedTuple):
    """The figures of one run."""

    bytes_per_s: float
    longest_throttle_ms: int
    neighbour_p99_ms: float


class Client:
    """One connection, with one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, bootstrap: str) -> Client:
        host, _, port = bootstrap.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def ask(self, request: bytes) -> bytes:
        """The answer behind its correlation id."""
        self._writer.write(request)
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return (await self._reader.readexactly(size))[4:]

    def close(self) -> None:
        self._writer.close()


def fetch_request(client_id: str = CLIENT_ID, max_bytes: int = 64 * BATCH_BYTES) -> bytes:
    """Returns a request for the records of partition 0 from its beginning on, without a session."""
    topic, name = TOPIC.encode(), client_id.encode()
    body = struct.pack(">iiiibii", -1, 0, 0, max_bytes, 0, 0, -1)
    body += struct.pack(">ih", 1, len(topic)) + topic
    body += struct.pack(">iiiqqi", 1, 0, -1, 0, -1, max_bytes) + struct.pack(">ih", 0, 0)
    frame = struct.pack(">hhih", 1, FETCH_VERSION, 1, len(name)) + name + body
    return struct.pack(">i", len(frame)) + frame


class Load:
    """The work of the clients of one run together."""

    def __init__(self, request: bytes, *, is_produce: bool) -> None:
        self._request = request
        self._is_produce = is_produce
        self.done_bytes = 0
        self.longest_throttle_ms = 0

    async def run(self, client: Client) -> None:
        """Sends requests, and waits for each throttle time in an answer, until it is cancelled."""
        while True:
            answer = await client.ask(self._request)
            # Behind a produce's answer come its tagged fields, of which there are none.
            throttle_ms = struct.unpack(">i", answer[-5:-1] if self._is_produce else answer[:4])[0]
            if self._is_produce:
                self.done_bytes += len(self._request)
            else:
                self.done_bytes += max(0, len(answer) - 200)
            self.longest_throttle_ms = max(self.longest_throttle_ms, throttle_ms)
            if throttle_ms:
                await asyncio.sleep(throttle_ms / 1000)


async def neighbour(bootstrap: str, until_s: float) -> float:
    """The 99th percentile of a small produce, in milliseconds."""
    client = await Client.connect(bootstrap)
    batch = bytes(encode_batch([(1_700_000_000_000, None, bytes(100), ())]))
    request = request_of(batch, 1, 1).replace(b"\x05bench", b"\x05other")
    took_s = []
    while time.perf_counter() < until_s:
        began_s = time.perf_counter()
        await client.ask(request)
        took_s.append(time.perf_counter() - began_s)
        await asyncio.sleep(0.005)
    client.close()
    return statistics.quantiles(took_s, n=100)[98] * 1000


async def measure(bootstrap: str, load: Load, connections: int, seconds: float) -> Result:
    clients = [await Client.connect(bootstrap) for _ in range(connections)]
    began_s = time.perf_counter()
    tasks = [asyncio.create_task(load.run(client)) for client in clients]
    p99_ms = await neighbour(bootstrap, began_s + seconds)
    bytes_per_s = load.done_bytes / (time.perf_counter() - began_s)
    for task in tasks:
        if not task.cancel():
            task.result()
    await asyncio.gather(*tasks, return_exceptions=True)
    for client in clients:
        client.close()
    return Result(bytes_per_s, load.longest_throttle_ms, p99_ms)


async def fill(bootstrap: str, request: bytes) -> None:
    """Something to be fetched."""
    client = await Client.connect(bootstrap)
    for _ in range(100):
        await client.ask(request)
    client.close()


def set_quota(bootstrap: str, key: str, value: float | None) -> None:
    """Sets the quota `key` for the client id of the load, or removes it if `value` is None."""
    change = {"key": key, "value": value or 0.0, "remove": value is None}
    entity = [{"entity_type": "client-id", "entity_name": CLIENT_ID}]
    with KafkaWire(bootstrap) as wire:
        fields = {"entries": [{"entity": entity, "ops": [change]}], "validate_only": False}
        answer = wire.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, fields)
    assert answer.entries[0].error_code.name == "none", answer
    time.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rate", type=float, default=2_000_000)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--only", default="", help="quotas whose name has this")
    parser.add_argument("--peer", choices=("klamm", "kafka"), default="klamm")
    options = parser.parse_args()
    assert PRODUCE_VERSION >= 9, "the last answer's byte is that of tagged fields"
    batch = bytes(encode_batch([(1_700_000_000_000, None, bytes(BATCH_BYTES), ())]))
    loads = {
        "producer_byte_rate": (request_of(batch, 0, 1), True),
        "consumer_byte_rate": (fetch_request(), False),
    }
    start = klamm if options.peer == "klamm" else kafka
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as scratch, start(pathlib.Path(scratch)) as peer:
        create_topic(peer.bootstrap, TOPIC, 2, 1)
        first_produce(peer.bootstrap, TOPIC, READY_S)
        asyncio.run(fill(peer.bootstrap, request_of(batch, 0, 1)))
        alone_ms = asyncio.run(neighbour(peer.bootstrap, time.perf_counter() + options.seconds / 3))
        print(f"a neighbour alone: p99 {alone_ms:.1f} ms", flush=True)
        print("| quota | connections | of the rate | longest throttle ms | neighbour's p99 ms |\n|---|---|---|---|---|")
        for key, (request, is_produce) in loads.items():
            if options.only not in key:
                continue
            for connections in options.connections:
                set_quota(peer.bootstrap, key, options.rate)
                load = Load(request, is_produce=is_produce)
                result = asyncio.run(measure(peer.bootstrap, load, connections, options.seconds))
                set_quota(peer.bootstrap, key, None)
                print(
                    f"| {key} | {connections} | {result.bytes_per_s / options.rate:.3f}"
                    f" | {result.longest_throttle_ms} | {result.neighbour_p99_ms:.1f} |",
                    flush=True,
                )
                # The quota counts past requests for eleven seconds, whatever its rate.
                time.sleep(12)


if __name__ == "__main__":
    main()
