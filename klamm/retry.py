"""How long to wait before trying again: a policy, not a loop. The caller that retries does the waiting.

Kafka's `ExponentialBackoff` (KIP-580): the delay doubles up to a maximum, and jitter keeps the clients that one
failure hit from coming back all at once.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

NEWS_MULTIPLIER: Final = 1.2
"""How the pause between questions for a new leader or coordinator grows. Others wait for the answer, and to find one
takes less than a second: doubled, the pause would cost as much again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Delays between `initial_ms` and `max_ms`, each spread by `jitter` (0.2: 20 % down or up)."""

    initial_ms: int
    max_ms: int
    multiplier: float = 2.0
    jitter: float = 0.2

    def delay_ms(self, failures: int, rng: random.Random) -> float:
        """The wait after the `failures`th failure in a row (1: the first); never above `max_ms`."""
        # The exponent is bounded because a float overflows after some 1,000 doublings.
        grown = self.initial_ms * self.multiplier ** min(failures - 1, 64)
        return min(grown * rng.uniform(1 - self.jitter, 1 + self.jitter), self.max_ms)
