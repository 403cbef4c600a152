"""Virtual time, and the order of everything that happens in a simulated world.

Time passes only between events. All chance comes from the seed, so the same seed tells the same story. Each event goes
into a checksum: two runs with the same seed have equal checksums, and the first difference is a leak of real time, real
chance or an address.
"""

from __future__ import annotations

import heapq
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.world.process import SimProcess

WALL_START_US = 1_800_000_000_000_000
"""The wall clock of every machine when the world begins."""
SECOND_US = 1_000_000

Range = tuple[int, int]


class ProcessEnded(SystemExit):
    """A simulated process ended itself. As a SystemExit, it leaves tasks and callbacks without being handled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """How long things take in a world, in microseconds. Each value is drawn between two bounds."""

    turn_us: Range = (5, 60)
    """From the moment a process has work until its event loop does it."""
    job_start_us: Range = (20, 300)
    """From handing a job to a thread until the thread begins it."""
    job_end_us: Range = (10, 200)
    """From the end of a job until its process hears of it."""
    latency_us: Range = (50, 400)
    """The way of a message through the network."""
    fsync_us: Range = (200, 3_000)


class World:
    """The events of one simulation that are still to come, in the order of their times."""

    def __init__(self, seed: int, timings: Timings | None = None, *, keeps_trace: bool = False) -> None:
        self.seed = seed
        self.timings = timings or Timings()
        self.rng = random.Random(seed)
        self.now_us = SECOND_US
        self.current: SimProcess | None = None
        """The process whose code runs now."""
        self.checksum = 0
        self.trace: list[str] | None = [] if keeps_trace else None
        self.event_count = 0
        self.deaths: list[str] = []
        """The processes that ended by themselves, with the reason."""
        self.errors: list[str] = []
        """The exceptions of callbacks, which nobody else sees."""
        self.remains: list[object] = []
        """The tasks of dead processes. They stay here, so that no `finally` of theirs runs."""
        self._events: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._number = 0

    def at(self, when_us: int, do: Callable[..., object], *arguments: Any) -> None:
        """Calls `do` at a time. Events with the same time happen in the order of these calls."""
        self._number += 1
        heapq.heappush(self._events, (when_us, self._number, do, arguments))

    def after(self, delay_us: int, do: Callable[..., object], *arguments: Any) -> None:
        self.at(self.now_us + delay_us, do, *arguments)

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Lets so much time pass, or less if `until` returns True after an event. Returns whether it did."""
        end_us = self.now_us + int(seconds * SECOND_US)
        events = self._events
        while events and events[0][0] <= end_us:
            self.now_us, _, do, arguments = heapq.heappop(events)
            self.event_count += 1
            do(*arguments)
            if until is not None and until():
                return True
        self.now_us = end_us
        return False

    def draw(self, bounds: Range) -> int:
        return self.rng.randint(*bounds)

    def note(self, *parts: object) -> None:
        """Adds an event to the checksum, and to the trace if there is one."""
        text = f"{self.now_us} {' '.join(map(str, parts))}"
        self.checksum = zlib.crc32(text.encode(), self.checksum)
        if self.trace is not None:
            self.trace.append(text)
