"""A token bucket, which limits the rate of changes (KIP-599).

This is Kafka's TokenBucket, as ControllerMutationQuotaManager uses it. A request is admitted unless the number of
tokens is negative. It may take more tokens than there are.
"""

from __future__ import annotations

import math


class TokenBucket:
    """A bucket of tokens, which is full at first. `rate` is the number of tokens that are added per second. `burst_s`
    is the capacity, in seconds of that rate. Each call may pass other values."""

    __slots__ = ("_tokens", "last_ms")

    def __init__(self, now_ms: int) -> None:
        self._tokens = math.inf
        self.last_ms = now_ms
        """The time of the last call, in milliseconds."""

    def throttle_ms(self, rate: float, burst_s: float, now_ms: int) -> int:
        """Returns the time in milliseconds until the number of tokens is no longer negative, or 0 if it is not negative
        now."""
        self._refill(rate, burst_s, now_ms)
        return math.floor(-self._tokens / rate * 1000 + 0.5) if self._tokens < 0 else 0

    def take(self, amount: float, rate: float, burst_s: float, now_ms: int) -> None:
        """Takes `amount` tokens, even if the bucket has fewer. Its number of tokens may become negative."""
        self._refill(rate, burst_s, now_ms)
        self._tokens -= amount

    def _refill(self, rate: float, burst_s: float, now_ms: int) -> None:
        self._tokens = min(burst_s * rate, self._tokens + rate * (now_ms - self.last_ms) / 1000)
        self.last_ms = now_ms
