"""Redis streams with redis-py and hiredis (`peer_logs.Log`). `redis-server` has an append-only file that it fsyncs
every second, and no snapshots. Records are sent in pipelines of XADD, and read by XREAD without a group."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
import time
from collections.abc import Iterator

import psutil
import redis

from bench.peer_logs import OUTSTANDING, TIMEOUT_S, Pace, age_ms, program, stamped, wait_for_port
from bench.peer_servers import HOST, Peer, end
from bench.servers import free_port

READ = 1_000
"""Records of one answer."""


@contextlib.contextmanager
def start(directory: pathlib.Path) -> Iterator[Peer]:
    port = free_port()
    command = [program("redis-server"), "--bind", HOST, "--port", str(port), "--dir", str(directory), "--save", ""]
    command += ["--appendonly", "yes", "--appendfsync", "everysec"]
    with (directory / "redis.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, text=True)
    try:
        yield Peer("redis", f"{HOST}:{port}", [psutil.Process(process.pid)])
    finally:
        end(process)


def create(address: str, log: str) -> None:
    """The first record creates it."""


def delete(address: str, log: str) -> None:
    with _connected(address) as client:
        client.delete(log)


def produce(address: str, log: str, size_bytes: int, count: int) -> float:
    value = bytes(size_bytes)
    with _connected(address) as client:
        started = time.perf_counter()
        for sent in range(0, count, OUTSTANDING):
            _add(client, log, [value] * min(OUTSTANDING, count - sent))
        return time.perf_counter() - started


def produce_singly(address: str, log: str, size_bytes: int, seconds: float) -> float:
    record = {"v": bytes(size_bytes)}
    with _connected(address) as client:
        count, started = 0, time.perf_counter()
        while time.perf_counter() - started < seconds:
            client.xadd(log, record)
            count += 1
        return count / (time.perf_counter() - started)


def consume(address: str, log: str, count: int) -> float:
    with _connected(address) as client:
        last, seen = _read(client, log, "0", 1)[-1][0], 1
        started = time.perf_counter()
        while seen < count:
            records = _read(client, log, last, READ)
            last, seen = records[-1][0], seen + len(records)
        return time.perf_counter() - started


def produce_at(address: str, log: str, rate: int, count: int) -> None:
    with _connected(address) as client:
        pace, sent = Pace(rate), 0
        while sent < count:
            if (wait_s := pace.wait_s(sent)) > 0:
                time.sleep(wait_s)
            due = min(pace.due(), count) - sent
            if due == 1:
                client.xadd(log, {"v": stamped()})
            else:
                _add(client, log, [stamped() for _ in range(due)])
            sent += due


def receive(address: str, log: str, count: int) -> list[float]:
    found: list[float] = []
    last: str | bytes = "0"
    with _connected(address) as client:
        while len(found) < count:
            records = _read(client, log, last, READ)
            now_ns = time.monotonic_ns()
            last = records[-1][0]
            found += [age_ms(fields[b"v"], now_ns) for _, fields in records]
    return found


def first_produce(address: str, log: str, retry_s: float) -> float:
    wait_for_port(address, retry_s)
    with _connected(address) as client:
        client.xadd(log, {"v": b"first"})
        return time.monotonic()


@contextlib.contextmanager
def _connected(address: str) -> Iterator[redis.Redis]:
    host, _, port = address.partition(":")
    with redis.Redis(host=host, port=int(port), protocol=2) as client:
        client.ping()
        yield client


def _add(client: redis.Redis, log: str, values: list[bytes]) -> None:
    """Adds all values in one pipeline, and raises the first refusal."""
    with client.pipeline(transaction=False) as pipeline:
        for value in values:
            pipeline.xadd(log, {"v": value})
        pipeline.execute()


def _read(client: redis.Redis, log: str, after: str | bytes, most: int) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Waits for one record."""
    answer = client.xread({log: after}, count=most, block=TIMEOUT_S * 1000)
    assert answer, f"no record of {log} after {after!r} within {TIMEOUT_S} s"
    records: list[tuple[bytes, dict[bytes, bytes]]] = answer[0][1]
    return records
