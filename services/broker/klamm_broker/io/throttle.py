"""Holds worker threads together to a number of bytes per second, and ends them when the broker stops."""

from __future__ import annotations

import threading
import time

_SLICE_S = 0.05
"""Waiting for less is put off."""


class ThrottleStopped(Exception):
    """The broker stops."""


class Throttle:
    """Any number of threads, together. They call it with the bytes that they read or wrote, and it waits."""

    def __init__(self, max_bytes_per_second: float) -> None:
        self._bytes_per_s = max_bytes_per_second
        self._lock = threading.Lock()
        self._free_at_s = 0.0
        self._stopped = False
        self._wake = threading.Event()

    def set_rate(self, max_bytes_per_second: float) -> None:
        """Sets the rate from now on. Calls that wait return: they were waiting by the rate before."""
        with self._lock:
            self._bytes_per_s = max_bytes_per_second
            self._free_at_s = 0.0
            self._wake.set()
            self._wake = threading.Event()

    @property
    def is_stopped(self) -> bool:
        return self._stopped

    def stop(self) -> None:
        """Every call from now on, and every one that waits, raises ThrottleStopped."""
        with self._lock:
            self._stopped = True
            self._wake.set()

    def __call__(self, size_bytes: int) -> None:
        with self._lock:
            now_s = time.monotonic()
            self._free_at_s = max(self._free_at_s, now_s) + size_bytes / self._bytes_per_s
            wait_s, wake = self._free_at_s - now_s, self._wake
        if wait_s > _SLICE_S:
            wake.wait(wait_s)
        if self._stopped:
            raise ThrottleStopped
