"""What single requests cost the server: prepared ones by a plain socket (`kafka_produce`), which writes them whole.

librdkafka writes each record of a batch into two records of TLS, Java's client and others a whole request; so this is
how encryption compares where the client does not make it dear. CPU is a server's own, and steadier than its speed.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import pathlib
import ssl
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from bench.client_quotas import fetch_request
from bench.kafka_produce import PARTITIONS, READY_S, TOPIC, Connection, Load, measure
from bench.peer_figures import Figures
from bench.peer_servers import Peer, klamm
from bench.peer_workload import create_topic, first_produce, in_a_process
from bench.secured_peers import STARTS, SecuredPeer, client_context
from bench.security_data import in_rounds, ratio

SMALL: Final = Load("produce 1 KiB", 1_100, 16, -1)
USUAL: Final = Load("produce 16 KiB", 16_384, 16, -1)
LARGE: Final = Load("produce 1 MiB", 1_048_576, 4, -1)
REQUESTS: Final = {SMALL: 6_000, USUAL: 6_000, LARGE: 240}
FETCHES: Final = 4_000
FETCH_BYTES: Final = 1_000
UNDER_WAY: Final = 8
CPU, SPEED = "CPU us", "requests/s"
HEADER: Final = "| request | | CPU us | requests/s | CPU, times | speed, times |\n|---|---|---|---|---|---|"


class Side(NamedTuple):
    """A server, and how one comes to it."""

    name: str
    peer: Peer
    context: ssl.SSLContext | None = None


def produce(side: Side, load: Load, size: float) -> Figures:
    """Produces, and returns the cost of a request."""
    cost = measure(side.peer, load, int(REQUESTS[load] * size), side.context)
    return {CPU: cost.user_us + cost.system_us, SPEED: cost.requests_per_s}


def fetch(side: Side, size: float) -> Figures:
    """Fetches the first batch of a partition, of 1 KiB, again and again. Returns the cost of a request."""
    rounds = int(FETCHES * size) // UNDER_WAY
    requests = fetch_request(max_bytes=FETCH_BYTES) * UNDER_WAY
    connection = Connection(side.peer.bootstrap, side.context)
    cpu_s, started_s = side.peer.cpu_s(), time.perf_counter()
    for _ in range(rounds):
        connection.send(requests)
        answers = [connection.whole_answer() for _ in range(UNDER_WAY)]
    took_s = time.perf_counter() - started_s
    connection.close()
    assert len(answers[-1]) > FETCH_BYTES, f"an answer without records: {answers[-1]!r}"
    total = rounds * UNDER_WAY
    return {CPU: (side.peer.cpu_s() - cpu_s) / total * 1e6, SPEED: total / took_s}


def _lines(what: str, sides: Sequence[Side], runs: Sequence[Sequence[Figures]]) -> Iterator[str]:
    """Yields a line for each side, compared with the first one. The first round is left out, because it is a
    warm-up."""
    for side, found in zip(sides, runs, strict=True):
        cpu_us, rate = (statistics.median(each[figure] for each in found[1:]) for figure in (CPU, SPEED))
        beside = " | ".join(f"{ratio(found[1:], runs[0][1:], figure):.3f}" for figure in (CPU, SPEED))
        yield f"| {what} | {side.name} | {cpu_us:.1f} | {rate:,.0f} | {beside} |"


def _measured(sides: Sequence[Side], loads: Sequence[Load], rounds: int, size: float) -> Iterator[str]:
    for load in loads:
        runs = in_rounds(sides, rounds + 1, functools.partial(produce, load=load, size=size))
        yield from _lines(load.name, sides, runs)
        if load is SMALL:
            yield from _lines("fetch 1 KiB", sides, in_rounds(sides, rounds + 1, functools.partial(fetch, size=size)))


def _with_topic(secured: SecuredPeer) -> SecuredPeer:
    create_topic(secured.bootstrap("PLAINTEXT"), TOPIC, PARTITIONS, 1)
    return secured


@contextlib.contextmanager
def _directory() -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory(prefix="klamm-security-", ignore_cleanup_errors=True) as scratch:
        yield pathlib.Path(scratch)


def measure_requests(options: argparse.Namespace) -> Iterator[str]:
    """Measures requests with and without TLS, of Klamm and of Kafka."""
    with _directory() as scratch:
        for name, start in STARTS.items():
            with start(scratch / name, has_authorizer=False) as secured:
                _with_topic(secured)
                sides = [
                    Side(f"{name}, plaintext", secured.at("PLAINTEXT")),
                    Side(f"{name}, TLS", secured.at("SSL"), client_context()),
                ]
                yield from _measured(sides, (SMALL, USUAL, LARGE), options.rounds, options.size)


def measure_authorizer(options: argparse.Namespace) -> Iterator[str]:
    """Measures requests with and without an authorizer. There is no TLS."""
    with (
        _directory() as scratch,
        STARTS["klamm"](scratch / "off", has_authorizer=False) as off,
        STARTS["klamm"](scratch / "on", has_authorizer=True) as on,
    ):
        sides = [
            Side("no authorizer", _with_topic(off).at("PLAINTEXT")),
            Side("authorizer", _with_topic(on).at("PLAINTEXT")),
        ]
        yield from _measured(sides, (SMALL, USUAL), options.rounds, options.size)


def measure_off(options: argparse.Namespace) -> Iterator[str]:
    """Before there was security, and now without."""
    with (
        _directory() as scratch,
        klamm(scratch / "before", checkout=options.before) as before,
        klamm(scratch / "now") as now,
    ):
        sides = [Side("before", before), Side("now", now)]
        for side in sides:
            in_a_process(first_produce, side.peer.bootstrap, "ready", READY_S)
            create_topic(side.peer.bootstrap, TOPIC, PARTITIONS, 1)
        yield from _measured(sides, (SMALL, USUAL), options.rounds, options.size)
