"""Virtual time: a heap of (time, sequence, what to do), and one source of randomness."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

MS = 1_000
"""Microseconds, in which the world counts, of a millisecond."""


class World:
    """The clock and all future events, in order. Events of the same time happen in the order of their scheduling."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_us = 0
        self.event_count = 0
        """The number of events so far: deliveries, timers, disks, requests, faults."""
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0

    def after(self, delay_us: int, action: Callable[..., None], *args: Any) -> None:
        """Schedules an action."""
        self._sequence += 1
        heapq.heappush(self._heap, (self.now_us + delay_us, self._sequence, action, args))

    def run_until(self, end_us: int, is_done: Callable[[], bool] | None = None) -> None:
        """Lets everything happen up to a time, or until `is_done`, asked after every event."""
        heap = self._heap
        while heap and heap[0][0] <= end_us:
            self.now_us, _, action, args = heapq.heappop(heap)
            action(*args)
            if is_done is not None and is_done():
                return
        self.now_us = end_us
