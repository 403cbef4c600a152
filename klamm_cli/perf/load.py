"""How many records a measurement sends, and how fast. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

CHUNK: Final = 100
"""The largest number of records between two looks at the clock. One of them is measured for its latency."""
_WARM_UP_S: Final = 1.0
_WARM_UP_RECORDS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load of one measurement."""

    seconds: float
    """The time to send for, unless there is a `count`."""
    count: int | None = None
    """The number of records to send."""
    rate: float | None = None
    """The number of records a second. With None, the producer sends as fast as it can."""

    def due(self, sent: int, elapsed_s: float) -> int | None:
        """Returns how many records to send now, at most CHUNK, or None at the end."""
        if sent >= self.count if self.count is not None else elapsed_s >= self.seconds:
            return None
        left = CHUNK if self.count is None else min(CHUNK, self.count - sent)
        return left if self.rate is None else max(0, min(left, int(elapsed_s * self.rate) + 1 - sent))

    def wait_s(self, sent: int, elapsed_s: float) -> float:
        """Returns the time until the next record is due."""
        return 0.0 if self.rate is None else max(0.0, sent / self.rate - elapsed_s)

    def warm_up(self) -> Self:
        """Returns a shorter load, which brings connections, caches and code into the state that they then keep."""
        return replace(
            self,
            seconds=min(self.seconds, _WARM_UP_S),
            count=None if self.count is None else min(self.count, _WARM_UP_RECORDS),
        )
