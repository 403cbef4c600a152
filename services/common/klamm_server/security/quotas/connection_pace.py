"""The rate of new connections from all addresses, at all listeners together or at one (`max.connection.creation.rate`,
KIP-612). Connections above the rate are delayed. Pure."""

from __future__ import annotations

from klamm.setting import INT_MAX
from klamm_server.security.quotas.rate_window import RateWindow, WindowSpan


class ConnectionPace:
    """Times are monotonic milliseconds. A listener's pace is a part of the `whole` one of its broker."""

    def __init__(self, rate_max: int, span: WindowSpan, whole: ConnectionPace | None = None) -> None:
        self.rate_max = rate_max
        """Connections a second; INT_MAX: any number."""
        self._window = RateWindow(span)
        self._whole = whole

    @property
    def is_on(self) -> bool:
        """Whether there is a bound, here or for the whole."""
        return self.rate_max < INT_MAX or (self._whole is not None and self._whole.is_on)

    def note(self, now_ms: int) -> int:
        """A new connection: for how many milliseconds it is to be held back."""
        rest_ms = 0 if self._whole is None else self._whole.note(now_ms)
        if self.rate_max == INT_MAX:
            return rest_ms
        self._window.record(1, self.rate_max, now_ms)
        return max(rest_ms, self._window.throttle_ms(self.rate_max, now_ms))

    def take_back(self, now_ms: int) -> None:
        """The connection that was noted last is refused, and does not count."""
        if self._whole is not None:
            self._whole.take_back(now_ms)
        if self.rate_max < INT_MAX:
            self._window.record(-1, self.rate_max, now_ms)
