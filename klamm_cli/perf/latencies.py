"""Percentiles of latencies in bounded memory. Pure."""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

_GROWTH: Final = 1.01
"""The upper bound of a bucket divided by its lower bound. A percentile is off by at most half of a percent."""
_LEAST_S: Final = 1e-6
_LOG_GROWTH: Final = math.log(_GROWTH)


class Latencies:
    """A histogram of latencies from a microsecond up. It has about 230 buckets for each power of ten."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._total = 0

    def add(self, seconds: float) -> None:
        """Counts one latency."""
        self._counts[int(math.log(max(seconds, _LEAST_S) / _LEAST_S) / _LOG_GROWTH)] += 1
        self._total += 1

    def percentile_ms(self, percent: float) -> float | None:
        """Returns the latency in milliseconds that `percent` of the latencies do not exceed, or None if there are
        none."""
        rank = math.ceil(self._total * percent / 100)
        for bucket in sorted(self._counts):
            rank -= self._counts[bucket]
            if rank <= 0:
                return math.exp((bucket + 0.5) * _LOG_GROWTH) * _LEAST_S * 1000
        return None
