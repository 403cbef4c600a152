"""The adaptive election time-out. It grows after elections against a live leader, and shrinks after a quiet time.

On an overloaded machine, a live leader may send nothing for longer than the election time-out. Each needless election
adds load, so the next silence becomes more likely. A quorum that only elects leaders is down. So a replica that wrongly
took another replica for dead doubles its time-out, up to a maximum. After each quiet period, the time-out halves again.
So after a quiet time, the death of a leader costs only the configured time-out.

Only liveness depends on the time-out, because safety needs no clock. The replicas of a quorum may have different
time-outs.
"""

from __future__ import annotations

from typing import Final

CALM_MS: Final = 30_000
"""The time without a false alarm after which the time-out halves, in milliseconds."""


class Patience:
    """The election time-out in force, between `base_ms` and `max_ms`. `base_ms` is the limit if `max_ms` is less."""

    def __init__(self, base_ms: int, max_ms: int) -> None:
        self._base_ms = base_ms
        self._max_ms = max(base_ms, max_ms)
        self._timeout_ms = base_ms
        self._changed_ms = 0
        """The time of the last increase, or of the last scheduled decrease, in milliseconds."""

    def timeout_ms(self, now_ms: int) -> int:
        """Returns the current election time-out in milliseconds."""
        while self._timeout_ms > self._base_ms and now_ms - self._changed_ms >= CALM_MS:
            self._timeout_ms = max(self._base_ms, self._timeout_ms // 2)
            self._changed_ms += CALM_MS
        return self._timeout_ms

    def on_false_alarm(self, now_ms: int) -> None:
        """Doubles the time-out, because a replica that seemed dead is alive. Further alarms within one time-out do not
        count."""
        timeout_ms = self.timeout_ms(now_ms)
        if timeout_ms == self._base_ms or now_ms - self._changed_ms >= timeout_ms:
            self._timeout_ms = min(2 * timeout_ms, self._max_ms)
            self._changed_ms = now_ms
