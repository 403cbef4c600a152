"""Delays before retries. The caller retries and waits.

Kafka's `ExponentialBackoff` (KIP-580): the delay doubles up to a maximum, and jitter keeps the clients that one
failure hit from coming back all at once."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

NEWS_MULTIPLIER: Final = 1.2
"""The growth of the pause between look-ups of a new leader or coordinator. Clients wait for the result, which takes
less than a second. Doubling could add as much time again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Delays between `initial_ms` and `max_ms`. Each is spread by `jitter`: 0.2 means up to 20 % less or more."""

    initial_ms: int
    max_ms: int
    multiplier: float = 2.0
    jitter: float = 0.2

    def delay_ms(self, failures: int, rng: random.Random) -> float:
        """Returns the delay after the `failures`th failure in a row (1 is the first), in milliseconds. It never exceeds
        `max_ms`."""
        # The exponent is bounded because a float overflows after some 1,000 doublings.
        grown = self.initial_ms * self.multiplier ** min(failures - 1, 64)
        return min(grown * rng.uniform(1 - self.jitter, 1 + self.jitter), self.max_ms)
