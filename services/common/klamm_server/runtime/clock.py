"""Time as a port: shells hand it to cores as numbers."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Both clocks in milliseconds."""

    def wall_ms(self) -> int:
        """Since the epoch; only for timestamps that people or records see."""

    def monotonic_ms(self) -> int:
        """The time for every deadline and interval; it never goes back."""


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
