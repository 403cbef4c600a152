"""How many changes may be made, as tokens that come at a rate (KIP-599). Kafka's TokenBucket, as its
ControllerMutationQuotaManager uses it: a request is let in while there are tokens, and may take more than there are."""

from __future__ import annotations

import math


class TokenBucket:
    """A bucket of tokens, which is full at first. `rate` is tokens per second, and `burst_s` the capacity in seconds of
    that rate. Both may change."""

    __slots__ = ("_tokens", "last_ms")

    def __init__(self, now_ms: int) -> None:
        self._tokens = math.inf
        self.last_ms = now_ms
        """The time of the last use."""

    def throttle_ms(self, rate: float, burst_s: float, now_ms: int) -> int:
        """Returns the time until there are tokens again, or 0 if there are any."""
        self._refill(rate, burst_s, now_ms)
        return math.floor(-self._tokens / rate * 1000 + 0.5) if self._tokens < 0 else 0

    def take(self, amount: float, rate: float, burst_s: float, now_ms: int) -> None:
        """Takes that many tokens, even if the bucket has fewer."""
        self._refill(rate, burst_s, now_ms)
        self._tokens -= amount

    def _refill(self, rate: float, burst_s: float, now_ms: int) -> None:
        self._tokens = min(burst_s * rate, self._tokens + rate * (now_ms - self.last_ms) / 1000)
        self.last_ms = now_ms
