"""The figures of Klamm and a peer that are measured in turns, for every run, and the lines of a table with them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from bench.peer_servers import Peer, idle_s
from bench.turns import rounds

IDLE_S = 5
Figures = dict[str, float]
"""The figures of one run, by names like "what, unit"."""
Sides = dict[str, tuple[list[float], ...]]
"""The runs of each figure, of Klamm and of the peer."""
T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """The figures of one measurement, of both sides and of every run."""

    name: str
    unit: str
    ours: list[float]
    theirs: list[float]

    @property
    def ratio(self) -> float | None:
        """Returns the ratio of the medians, or None if the peer's median is 0."""
        theirs = statistics.median(self.theirs)
        return statistics.median(self.ours) / theirs if theirs else None

    def line(self) -> str:
        """A line of a Markdown table."""
        ours, theirs = (
            f"{statistics.median(runs):,.4g} ({min(runs):,.4g} to {max(runs):,.4g})"
            for runs in (self.ours, self.theirs)
        )
        ratio = "-" if self.ratio is None else f"{self.ratio:.2f}"
        return f"| {self.name} | {self.unit} | {ours} | {theirs} | {ratio} |"


def header(theirs: str) -> str:
    """The head of the table whose lines are rows."""
    return f"| what | | Klamm | {theirs} | Klamm/{theirs} |\n|---|---|---|---|---|"


def in_turns(pair: tuple[T, T], pairs: int, measure: Callable[[T], Figures]) -> Sides:
    """Measures both sides in each pair, in a random order."""
    runs: tuple[list[Figures], list[Figures]] = ([], [])
    for order in rounds((0, 1), pairs):
        for side in order:
            runs[side].append(measure(pair[side]))
    return {name: tuple([run[name] for run in side] for side in runs) for name in runs[0][0]}


def rows(sides: Sides, of: str = "") -> Iterator[Row]:
    """`of` says what was measured where the figures' names do not."""
    for name, (ours, theirs) in sides.items():
        what, _, unit = name.partition(", ")
        yield Row(f"{what}: {of}" if of else what, unit, ours, theirs)


def at_rest(peer: Peer, started_s: float, first_s: float) -> Figures:
    """The figures of a peer that was started, acknowledged a record (moments of `time.monotonic`) and has nothing more
    to do."""
    idle_s(IDLE_S)
    cpu_s = peer.cpu_s()
    idle_s(IDLE_S)
    return {
        "start to first acknowledged produce, s": first_s - started_s,
        "resident when idle, MB": peer.rss_mb(),
        "CPU when idle, % of a core": (peer.cpu_s() - cpu_s) / IDLE_S * 100,
    }
