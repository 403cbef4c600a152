"""How long a replica waits before it takes silence for death, learnt from how often it was wrong.

On a machine that gives its processes too little time, a leader is silent for longer than the election time-out and
alive all the same. Each election that this starts makes the next silence likelier, and a quorum that does nothing but
elect is down. So a replica that gave up another one that lives doubles its time-out, up to a maximum; after a quiet
time it takes half of that back. A leader that really died costs the time-out of a calm quorum.

Only liveness depends on it: safety needs no clock. The replicas of a quorum need not agree on it either.
"""

from __future__ import annotations

from typing import Final

CALM_MS: Final = 30_000
"""The time without a false alarm after which the time-out halves."""


class Patience:
    """The election time-out in force: `base_ms`, or up to `max_ms` if that is more."""

    def __init__(self, base_ms: int, max_ms: int) -> None:
        self._base_ms = base_ms
        self._max_ms = max(base_ms, max_ms)
        self._timeout_ms = base_ms
        self._changed_ms = 0
        """When it last rose, or should have sunk."""

    def timeout_ms(self, now_ms: int) -> int:
        """The present election time-out."""
        while self._timeout_ms > self._base_ms and now_ms - self._changed_ms >= CALM_MS:
            self._timeout_ms = max(self._base_ms, self._timeout_ms // 2)
            self._changed_ms += CALM_MS
        return self._timeout_ms

    def on_false_alarm(self, now_ms: int) -> None:
        """Notes that a replica that seemed dead is alive. Its messages within one time-out count once."""
        timeout_ms = self.timeout_ms(now_ms)
        if timeout_ms == self._base_ms or now_ms - self._changed_ms >= timeout_ms:
            self._timeout_ms = min(2 * timeout_ms, self._max_ms)
            self._changed_ms = now_ms
