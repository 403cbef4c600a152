"""The interface of clocks. Shells pass times to pure cores as numbers."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A wall clock and a monotonic clock, in milliseconds."""

    def wall_ms(self) -> int:
        """Returns the time since the epoch. It is only for timestamps that users or records see."""

    def monotonic_ms(self) -> int:
        """Returns the time for deadlines and intervals. It never goes back."""


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
