"""Threads that wait until another thread says that something has changed.

A signal handler may raise an exception, as Ctrl-C does, between any two instructions of the waiting thread.
`threading.Condition`, `threading.Event` and `concurrent.futures.Future` are written in Python. Such an exception can
come in the middle of their work. Then they release a lock that they do not hold, which raises a RuntimeError instead.
`SimpleQueue.get` is one call of C, so it either waits or raises the exception."""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")

WakeUps = SimpleQueue[None]


def woken(wake_ups: WakeUps, timeout_s: float | None = None) -> bool:
    """Waits until a wake-up is in the queue, and takes it. Returns False if there is none after `timeout_s`."""
    try:
        wake_ups.get(timeout=None if timeout_s is None else max(0.0, timeout_s))
    except Empty:
        return False
    return True


class WaitingThreads:
    """The threads that wait for the same changes. Any thread may call any method."""

    def __init__(self) -> None:
        self._wake_ups: dict[WakeUps, None] = {}
        """The queue of each waiting call."""

    def wake_all(self) -> None:
        """Lets all threads in `wait_for` ask again."""
        for wake_ups in list(self._wake_ups):
            wake_ups.put(None)

    def wait_for(self, ask: Callable[[], T | None], timeout_s: float) -> T | None:
        """Returns the first answer of `ask` that is not None, or None if there is none after `timeout_s`. Asks at once,
        and again after each `wake_all`. The caller must hold no lock that the other threads need."""
        wake_ups = WakeUps()
        deadline_s = time.monotonic() + timeout_s
        try:
            self._wake_ups[wake_ups] = None
            while (answer := ask()) is None:
                if not woken(wake_ups, deadline_s - time.monotonic()):
                    return None
            return answer
        finally:
            self._wake_ups.pop(wake_ups, None)
