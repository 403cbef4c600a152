"""Limits worker threads together to a number of bytes per second, and ends their waits when the broker stops."""

from __future__ import annotations

import threading
from collections.abc import Callable

from klamm.process import PROCESS

_SLICE_S = 0.05
"""Waits shorter than this are postponed, so that they add up to fewer and longer ones."""


class ThrottleStopped(Exception):
    """Raised in throttled threads when the broker stops."""


class Throttle:
    """A limit on the bytes per second of all its threads together. Threads call it with the bytes they have read or
    written, and the call waits."""

    def __init__(
        self,
        max_bytes_per_second: float,
        *,
        monotonic_s: Callable[[], float] | None = None,
        make_wake: Callable[[], threading.Event] | None = None,
    ) -> None:
        """`make_wake` makes the event that waiting calls wait for. Each change of the rate needs a new event."""
        self._bytes_per_s = max_bytes_per_second
        self._lock = threading.Lock()
        self._free_at_s = 0.0
        self._stopped = False
        self._monotonic_s = monotonic_s or PROCESS.get().elapsed_s
        self._make_wake = make_wake or PROCESS.get().make_event
        self._wake = self._make_wake()

    def set_rate(self, max_bytes_per_second: float) -> None:
        """Sets the rate. Calls that are waiting return immediately, because they computed their wait from the old
        rate."""
        with self._lock:
            self._bytes_per_s = max_bytes_per_second
            self._free_at_s = 0.0
            self._wake.set()
            self._wake = self._make_wake()

    @property
    def is_stopped(self) -> bool:
        return self._stopped

    def stop(self) -> None:
        """Stops the throttle. Waiting calls and all later calls raise ThrottleStopped."""
        with self._lock:
            self._stopped = True
            self._wake.set()

    def __call__(self, size_bytes: int) -> None:
        with self._lock:
            now_s = self._monotonic_s()
            self._free_at_s = max(self._free_at_s, now_s) + size_bytes / self._bytes_per_s
            wait_s, wake = self._free_at_s - now_s, self._wake
        if wait_s > _SLICE_S:
            wake.wait(wait_s)
        if self._stopped:
            raise ThrottleStopped
