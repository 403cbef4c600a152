"""Measures a recent rate per second, and how long a client must pause after it exceeded the rate's limit.

Kafka's `Rate` over `SampledStat`, as its ClientQuotaManager uses it: windows of a second, eleven of them and the part
of a twelfth that is still within their time. The sum is divided by the time of ten whole windows and of the elapsed
part of the eleventh. This is so even if the first record is younger, so that a new client may burst.

Kafka forgets a window whatever was in it. A client that does ten seconds' worth at once may therefore do so again a
second after they have gone by. A hundred connections, each of which does one thing more before it rests, never make up
for it. Here the client still owes what a forgotten window had beyond the limit, up to another burst, and time pays for
it. A client that asks as fast as it can has one burst, and comes to its limit from then on. No client rests for a
shorter time than Kafka says.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple


class WindowSpan(NamedTuple):
    """The windows over which a rate is measured."""

    windows: int = 11
    """The number of windows that are kept (`quota.window.num`)."""
    window_ms: int = 1_000
    """The length of a window (`quota.window.size.seconds`)."""

    @property
    def burst_s(self) -> float:
        """The burst in seconds: a client may use at once the amount that its rate allows in this time."""
        return (self.windows - 1) * self.window_ms / 1000


class _Window:
    __slots__ = ("amount", "last_ms", "start_ms")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = self.last_ms = start_ms
        self.amount = 0.0


class RateWindow:
    """The recent usage of one client. Call `record`, then `throttle_ms`. Times never go back.

    Invariant: `_owed` is the debt that was left at `_paid_ms`, the begin of the oldest window, if there is one."""

    __slots__ = ("_owed", "_paid_ms", "_span", "_windows")

    def __init__(self, span: WindowSpan) -> None:
        self._span = span
        self._windows: deque[_Window] = deque()
        self._owed = 0.0
        self._paid_ms = 0

    @property
    def last_ms(self) -> int:
        """Returns the time of the last record, or -1 if none is kept."""
        return self._windows[-1].last_ms if self._windows else -1

    def record(self, amount: float, limit: float, now_ms: int) -> None:
        """Records an amount. A negative amount takes back an earlier one. `limit` is the current limit per second."""
        windows = self._windows
        if not windows or now_ms - windows[-1].start_ms >= self._span.window_ms:
            self._forget(limit, now_ms)
            windows.append(_Window(now_ms))
        windows[-1].amount += amount
        windows[-1].last_ms = now_ms

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Returns the pause after which the rate is down to `limit` per second, or 0 if it is not higher."""
        self._forget(limit, now_ms)
        elapsed_ms = self._elapsed_ms(now_ms)
        rate = (self._owed + sum(window.amount for window in self._windows)) * 1000 / elapsed_ms
        return math.floor((rate - limit) / limit * elapsed_ms + 0.5) if rate > limit else 0

    def _forget(self, limit: float, now_ms: int) -> None:
        """Drops windows when their last moment is as old as all windows together are long."""
        windows, age_ms = self._windows, self._span.windows * self._span.window_ms
        while windows and now_ms - windows[0].last_ms >= age_ms:
            gone = windows.popleft()
            self._pay(gone.amount, limit, windows[0].start_ms if windows else now_ms)
        if not windows:
            self._pay(0, limit, now_ms)

    def _pay(self, amount: float, limit: float, until_ms: int) -> None:
        """Adds `amount` to the debt. The time until `until_ms` pays for what it can."""
        left = self._owed + amount - limit * (until_ms - self._paid_ms) / 1000
        self._owed = min(max(0.0, left), limit * self._span.burst_s)
        self._paid_ms = until_ms

    def _elapsed_ms(self, now_ms: int) -> int:
        span = self._span
        elapsed_ms = now_ms - self._windows[0].start_ms if self._windows else 0
        missing = span.windows - 1 - elapsed_ms // span.window_ms
        return max(1, elapsed_ms + max(0, missing) * span.window_ms)
