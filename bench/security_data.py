"""What encryption, logins and rights cost records on their way: the client, topics and batches of `peer_kafka`."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from bench.peer_figures import Figures
from bench.peer_workload import Load, consume, create_topic, delete_topic, in_a_process, produce
from bench.secured_peers import STARTS, TOPICS, SecuredPeer
from bench.turns import rounds

T = TypeVar("T")

PARTITIONS: Final = 12
RECORD_BYTES: Final = 1_024
RUN_BYTES: Final = {"16k": 200_000_000, "tuned": 400_000_000}
"""The bytes of records in one run, by the settings of its client."""
WAYS: Final = {
    "plaintext": ("PLAINTEXT", False),
    "TLS": ("SSL", False),
    "TLS, SCRAM": ("SASL_SSL", False),
    "TLS, SCRAM, authorizer": ("SASL_SSL", True),
}
"""The listener, and whether rights are asked for."""
HEADER: Final = (
    "| what | MB/s, Klamm / Kafka | of own plaintext | server CPU s per GB | of own plaintext |\n|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True)
class Side:
    """The clients of one server that connect in the same way."""

    name: str
    way: str
    secured: SecuredPeer


@contextlib.contextmanager
def all_sides() -> Iterator[list[Side]]:
    """Yields Klamm's and Kafka's sides together. For both, the authorizer is in a server of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="klamm-security-", ignore_cleanup_errors=True) as scratch,
        contextlib.ExitStack() as running,
    ):
        servers = {
            (name, has_authorizer): running.enter_context(
                start(pathlib.Path(scratch, f"{name}-{has_authorizer}"), has_authorizer=has_authorizer)
            )
            for name, start in STARTS.items()
            for has_authorizer in (False, True)
        }
        yield [Side(name, way, servers[name, WAYS[way][1]]) for way in WAYS for name in STARTS]


def throughput(side: Side, settings: str, count: int) -> Figures:
    """Produces a topic, consumes it, and deletes it."""
    listener, peer = WAYS[side.way][0], side.secured.peer
    bootstrap, administered = side.secured.bootstrap(listener), side.secured.bootstrap("PLAINTEXT")
    load = Load(
        topic=f"{TOPICS}{time.monotonic_ns()}",
        partitions=PARTITIONS,
        size_bytes=RECORD_BYTES,
        count=count,
        acks="all",
        settings=settings,
        security=side.secured.client(listener),
    )
    create_topic(administered, load.topic, PARTITIONS, 1)
    os.sync()
    size_gb = count * RECORD_BYTES / 1e9
    figures: Figures = {}
    for verb, work in (("produce", produce), ("consume", consume)):
        cpu_s = peer.cpu_s()
        took_s = in_a_process(work, bootstrap, load)
        figures[f"{verb}, MB/s"] = size_gb * 1000 / took_s
        figures[f"{verb}, CPU"] = (peer.cpu_s() - cpu_s) / size_gb
    delete_topic(administered, load.topic)
    return figures


def in_rounds(sides: Sequence[T], count: int, measure: Callable[[T], Figures]) -> list[list[Figures]]:
    """Measures all sides in each of `count` rounds, in a random order, and returns the figures of each side."""
    found: list[list[Figures]] = [[] for _ in sides]
    for order in rounds(range(len(sides)), count):
        for index in order:
            found[index].append(measure(sides[index]))
    return found


def ratio(ones: Sequence[Figures], others: Sequence[Figures], what: str) -> float:
    """The median of the ratios of each round: what else the machine did then, it did to both."""
    return statistics.median(one[what] / other[what] for one, other in zip(ones, others, strict=True))


def measure_data(options: argparse.Namespace) -> Iterator[str]:
    """The first round warms up."""
    with all_sides() as sides:
        for settings, run_bytes in RUN_BYTES.items():
            count = int(run_bytes * options.size) // RECORD_BYTES
            runs = in_rounds(sides, options.rounds + 1, functools.partial(throughput, settings=settings, count=count))
            found = {(side.name, side.way): figures[1:] for side, figures in zip(sides, runs, strict=True)}
            for verb in ("produce", "consume"):
                for way in WAYS:
                    yield _line(f"{verb} {settings}, {way}", found, way, verb)


def _line(what: str, found: Mapping[tuple[str, str], list[Figures]], way: str, verb: str) -> str:
    cells = [what]
    for figure, digits in ((f"{verb}, MB/s", 0), (f"{verb}, CPU", 2)):
        ours, theirs = found["klamm", way], found["kafka", way]
        medians = " / ".join(f"{statistics.median(run[figure] for run in runs):.{digits}f}" for runs in (ours, theirs))
        cells.append(f"{medians} = {ratio(ours, theirs, figure):.2f}")
        cells.append(" / ".join(f"{ratio(found[name, way], found[name, 'plaintext'], figure):.2f}" for name in STARTS))
    return f"| {' | '.join(cells)} |"
