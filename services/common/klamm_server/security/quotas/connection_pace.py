"""The rate of new connections from all addresses, at all listeners together or at one (`max.connection.creation.rate`,
KIP-612). Connections above the rate are delayed. Pure."""

from __future__ import annotations

from klamm.setting import INT_MAX
from klamm_server.security.quotas.rate_window import RateWindow, WindowSpan


class ConnectionPace:
    """Limits the rate of connections. Times are monotonic milliseconds. A listener's pace is a part of the `whole` pace
    of its broker."""

    def __init__(self, rate_max: int, span: WindowSpan, whole: ConnectionPace | None = None) -> None:
        self.rate_max = rate_max
        """The maximum number of connections per second. INT_MAX means no limit."""
        self._window = RateWindow(span)
        self._whole = whole

    @property
    def is_on(self) -> bool:
        """True if there is a limit, here or for the whole broker."""
        return self.rate_max < INT_MAX or (self._whole is not None and self._whole.is_on)

    def note(self, now_ms: int) -> int:
        """Counts a new connection. Returns how long it must be delayed, in milliseconds."""
        throttle_ms = 0 if self._whole is None else self._whole.note(now_ms)
        if self.rate_max == INT_MAX:
            return throttle_ms
        self._window.record(1, self.rate_max, now_ms)
        return max(throttle_ms, self._window.throttle_ms(self.rate_max, now_ms))

    def take_back(self, now_ms: int) -> None:
        """Takes back the last counted connection, because it is refused."""
        if self._whole is not None:
            self._whole.take_back(now_ms)
        if self.rate_max < INT_MAX:
            self._window.record(-1, self.rate_max, now_ms)
