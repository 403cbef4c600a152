"""Klamm beside a server of logs with a protocol of its own: one partition, and the Python client that suits each best.

A peer's module has the functions of `Log`; for Klamm that is `peer_confluent`. Both are at work by themselves, at most
`OUTSTANDING` records ahead of what was acknowledged; neither fsyncs a record before it acknowledges it. Every record is
acknowledged and counted: a run that loses one fails.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import multiprocessing
import os
import pathlib
import shutil
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, cast

from bench.peer_figures import Figures, Row, at_rest, in_turns, rows
from bench.peer_servers import Peer
from bench.peer_workload import in_a_process

OURS = "peer_confluent"
OUTSTANDING = 4_000
TIMEOUT_S = 120
START_S = 60
SINGLY_S = 3.0
LATENCY_S = 6
WARM_UP_S = 2
KIB = 1024
COUNTS = {100: 300_000, KIB: 200_000, 10 * KIB: 40_000}
"""Records of one run, by their size."""
RATES = (1_000, 10_000)
STAMPED_BYTES = 100
STAMP = struct.Struct(">q")
Step = Callable[["Side"], Figures]


class Log(Protocol):
    """A module with a server of logs and its client. All functions but `start` run in processes of their own."""

    def start(self, directory: pathlib.Path) -> AbstractContextManager[Peer]:
        """Entered when its process has been started, which need not mean that it serves."""

    def create(self, address: str, log: str) -> None:
        """A log of one partition."""

    def delete(self, address: str, log: str) -> None: ...

    def produce(self, address: str, log: str, size_bytes: int, count: int) -> float:
        """Seconds from the first record to the last acknowledgement, with up to `OUTSTANDING` on their way."""

    def produce_singly(self, address: str, log: str, size_bytes: int, seconds: float) -> float:
        """Returns the records per second if each record is sent after the previous one is acknowledged."""

    def consume(self, address: str, log: str, count: int) -> float:
        """Seconds from the first record to the last."""

    def produce_at(self, address: str, log: str, rate: int, count: int) -> None:
        """Produces stamped records at a steady rate. Late records are sent at once."""

    def receive(self, address: str, log: str, count: int) -> list[float]:
        """Milliseconds from each record's stamp to the moment it is in the client's hand."""

    def first_produce(self, address: str, log: str, retry_s: float) -> float:
        """The moment (`time.monotonic`) of the first acknowledgement, for a client that was waiting for the server."""


class Pace:
    """The times when records are due, from now on."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._started_s = time.monotonic()

    def wait_s(self, number: int) -> float:
        """Returns the time until the record is due, in seconds. It is 0 or negative if the record is due now."""
        return self._started_s + number / self._rate - time.monotonic()

    def due(self) -> int:
        """Returns how many records are due by now."""
        return int((time.monotonic() - self._started_s) * self._rate) + 1


def stamped() -> bytes:
    """A record that says when it was made."""
    return STAMP.pack(time.monotonic_ns()) + bytes(STAMPED_BYTES - STAMP.size)


def age_ms(record: bytes, now_ns: int) -> float:
    """Returns the age of a stamped record, in milliseconds."""
    made_ns: int = STAMP.unpack_from(record)[0]
    return (now_ns - made_ns) / 1e6


def program(name: str) -> str:
    """Its path. Ends the run where it is missing."""
    # Debian's rabbitmq-server on the path is another one, which becomes the user rabbitmq.
    path = shutil.which(name, path=f"/usr/lib/rabbitmq/bin:{os.environ.get('PATH', '')}:/usr/sbin")
    return path or sys.exit(f"{name} not found: make bench-peers installs it from Debian's packages")


def wait_for_port(address: str, retry_s: float) -> None:
    """Waits until a server listens there. Raises ConnectionRefusedError after `retry_s`."""
    host, _, port = address.partition(":")
    deadline_s = time.monotonic() + retry_s
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except ConnectionRefusedError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.01)


def measure_log(name: str, options: argparse.Namespace) -> Iterator[Row]:
    """`name` is a module's. Yields what has `options.cells` in its description."""
    modules = (OURS, name)
    steps: list[tuple[str, Step]] = []
    for size in COUNTS:
        label = f"{size} B" if size < KIB else f"{size // KIB} KiB"
        count = COUNTS[size] // (4 if options.quick else 1)
        steps.append((label, functools.partial(_throughput, size=size, count=count)))
        steps.append((f"{label}, one at a time", functools.partial(_singly, size=size)))
    steps += [(f"{rate:,} records/s", functools.partial(_latency, rate=rate)) for rate in RATES]
    chosen = [(label, step) for label, step in steps if options.cells in label]
    if chosen:
        with _side(OURS) as ours, _side(name) as theirs:
            for label, step in chosen:
                yield from rows(in_turns((ours, theirs), options.pairs, step), label)
    if options.cells in "footprint":
        yield from rows(in_turns(modules, options.pairs, _footprint))


class Side:
    """A running server with its client."""

    def __init__(self, log: Log, peer: Peer) -> None:
        self.log = log
        self.peer = peer

    @contextlib.contextmanager
    def fresh_log(self) -> Iterator[str]:
        """Yields the name of a new log, and deletes the log at the end."""
        name = f"peers-{time.monotonic_ns()}"
        in_a_process(self.log.create, self.peer.bootstrap, name)
        yield name
        in_a_process(self.log.delete, self.peer.bootstrap, name)


@contextlib.contextmanager
def _side(module: str) -> Iterator[Side]:
    log = cast("Log", importlib.import_module(module))
    with (
        tempfile.TemporaryDirectory(prefix="klamm-peers-", ignore_cleanup_errors=True) as scratch,
        log.start(pathlib.Path(scratch)) as peer,
    ):
        in_a_process(log.first_produce, peer.bootstrap, "ready", START_S)
        yield Side(log, peer)


def _throughput(side: Side, size: int, count: int) -> Figures:
    figures: Figures = {}
    size_gb = count * size / 1e9
    os.sync()
    with side.fresh_log() as name:
        for verb, work, arguments in (
            ("produce", side.log.produce, (size, count)),
            ("consume", side.log.consume, (count,)),
        ):
            cpu_s = side.peer.cpu_s()
            took_s = in_a_process(work, side.peer.bootstrap, name, *arguments)
            figures[f"{verb}, records/s"] = count / took_s
            figures[f"{verb}, server CPU s/GB"] = (side.peer.cpu_s() - cpu_s) / size_gb
        figures["resident after, MB"] = side.peer.rss_mb()
    return figures


def _singly(side: Side, size: int) -> Figures:
    with side.fresh_log() as name:
        return {"produce, records/s": in_a_process(side.log.produce_singly, side.peer.bootstrap, name, size, SINGLY_S)}


def _latency(side: Side, rate: int) -> Figures:
    total = rate * (WARM_UP_S + LATENCY_S)
    with side.fresh_log() as name:
        sender = multiprocessing.get_context("spawn").Process(
            target=side.log.produce_at, args=(side.peer.bootstrap, name, rate, total)
        )
        sender.start()
        found = in_a_process(side.log.receive, side.peer.bootstrap, name, total)
        sender.join()
    assert sender.exitcode == 0, "the producer failed"
    cuts = statistics.quantiles(found[rate * WARM_UP_S :], n=1000)
    return {"latency p50, ms": cuts[499], "latency p99, ms": cuts[989], "latency p99.9, ms": cuts[998]}


def _footprint(module: str) -> Figures:
    log = cast("Log", importlib.import_module(module))
    with tempfile.TemporaryDirectory(prefix="klamm-peers-", ignore_cleanup_errors=True) as scratch:
        started_s = time.monotonic()
        with log.start(pathlib.Path(scratch)) as peer:
            first_s = log.first_produce(peer.bootstrap, "first", START_S)
            return at_rest(peer, started_s, first_s)
