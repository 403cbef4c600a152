"""Measures the cost of connections: a thousand consumers that wait, a hundred that read, and a producer beside them.

Run: python bench/connections.py [--idle 1000] [--active 100] [--peers klamm,kafka]

A waiting consumer has a fetch parked for half a second, again and again, as clients do by default; a reading one does
the same on the topic that is produced to. All are plain sockets in one process. Memory is resident, before and after;
the producer sends single records of 1 KiB, acks=all, one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import pathlib
import statistics
import struct
import tempfile
import time
from collections.abc import Iterator, Mapping
from multiprocessing.synchronize import Event

from bench.peer_servers import Peer, Start, kafka, klamm
from bench.peer_workload import create_topic, first_produce, in_a_process, make_producer

STARTS: dict[str, Start] = {"klamm": klamm, "kafka": kafka}
FETCH, FETCH_VERSION = 1, 11
WAIT_MS = 500
SETTLE_S = 3
IDLE_TOPIC, ACTIVE_TOPIC = "idle", "active"


def fetch(topic: str, offset: int) -> bytes:
    """A request for partition 0, without a session."""
    name = topic.encode()
    body = struct.pack(">iiiibii", -1, WAIT_MS, 1, 52_428_800, 0, 0, -1)
    body += struct.pack(">ih", 1, len(name)) + name + struct.pack(">iiiqqi", 1, 0, -1, offset, -1, 1_048_576)
    message = struct.pack(">hhih", FETCH, FETCH_VERSION, 1, -1) + body + struct.pack(">ih", 0, 0)
    return struct.pack(">i", len(message)) + message


async def consume(port: int, topic: str, *, reads_on: bool) -> None:
    """Runs one consumer until it is cancelled."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096)
    offset = 0
    while True:
        writer.write(fetch(topic, offset))
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        answer = await reader.readexactly(size)
        if reads_on:
            # Where the one partition's high watermark is, in an answer of this version with one topic.
            (offset,) = struct.unpack_from(">q", answer, 4 + 10 + 4 + 2 + len(topic) + 4 + 4 + 2)


async def consume_all(port: int, idle: int, active: int, connected: Event) -> None:
    tasks = []
    for number in range(idle + active):
        is_active = number >= idle
        tasks.append(asyncio.create_task(consume(port, ACTIVE_TOPIC if is_active else IDLE_TOPIC, reads_on=is_active)))
        await asyncio.sleep(0.001)
    connected.set()
    await asyncio.gather(*tasks)


def run_consumers(port: int, idle: int, active: int, connected: Event) -> None:
    asyncio.run(consume_all(port, idle, active, connected))


@contextlib.contextmanager
def consumers(port: int, idle: int, active: int) -> Iterator[None]:
    """Connected, in a process of their own."""
    context = multiprocessing.get_context("spawn")
    connected = context.Event()
    process = context.Process(target=run_consumers, args=(port, idle, active, connected), daemon=True)
    process.start()
    assert connected.wait(60), "the consumers did not connect"
    try:
        yield
    finally:
        process.terminate()
        process.join()


def acknowledged_ms(
    bootstrap: str, seconds: float, topic: str = ACTIVE_TOPIC, security: Mapping[str, str] | None = None
) -> list[float]:
    """Returns the latencies of single records, one after the other and 5 ms apart. `security` has the client's security
    settings."""
    producer = make_producer(bootstrap, "all", {"linger.ms": 0, **(security or {})})
    took_ms: list[float] = []
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        started_s = time.perf_counter()
        producer.produce(topic, bytes(1024), partition=0)
        producer.flush()
        took_ms.append((time.perf_counter() - started_s) * 1000)
        time.sleep(0.005)
    return took_ms


def percentiles(took_ms: list[float]) -> str:
    cuts = statistics.quantiles(took_ms, n=100)
    return f"produce p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms, longest {max(took_ms):.1f} ms"


def measure(peer: Peer, idle: int, active: int, seconds: float) -> None:
    in_a_process(first_produce, peer.bootstrap, "ready", 60)
    for topic in (IDLE_TOPIC, ACTIVE_TOPIC):
        create_topic(peer.bootstrap, topic, 1, 1)
    alone = in_a_process(acknowledged_ms, peer.bootstrap, seconds)
    port = int(peer.bootstrap.rpartition(":")[2])
    before_mb = peer.rss_mb()
    with consumers(port, idle, 0):
        time.sleep(SETTLE_S)
        idle_mb = peer.rss_mb()
        cpu_s = peer.cpu_s()
        time.sleep(SETTLE_S)
        idle_cpu = (peer.cpu_s() - cpu_s) / SETTLE_S * 100
    with consumers(port, idle, active):
        time.sleep(SETTLE_S)
        beside = in_a_process(acknowledged_ms, peer.bootstrap, seconds)
        all_mb = peer.rss_mb()
    print(f"{peer.name}: alone {percentiles(alone)}")
    print(f"{peer.name}: beside {idle} idle and {active} active consumers {percentiles(beside)}")
    print(
        f"{peer.name}: {before_mb:.0f} MB before, {idle_mb:.0f} MB with {idle} idle"
        f" ({(idle_mb - before_mb) / max(1, idle) * 1000:.0f} kB each, {idle_cpu:.0f}% of a core), {all_mb:.0f} MB with"
        f" {active} active too",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--idle", type=int, default=1_000)
    parser.add_argument("--active", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--peers", default="klamm,kafka")
    options = parser.parse_args()
    for name in options.peers.split(","):
        with tempfile.TemporaryDirectory(prefix="klamm-bench-") as scratch, STARTS[name](pathlib.Path(scratch)) as peer:
            measure(peer, options.idle, options.active, options.seconds)


if __name__ == "__main__":
    main()
