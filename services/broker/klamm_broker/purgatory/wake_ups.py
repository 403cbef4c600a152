"""Wakes requests whose wait is over, a few in each turn of the event loop, in the order of arrival.

One append may end the wait of a thousand fetches. If all were answered in one turn, new requests, such as a producer's,
would have to wait for all of them. With a few per turn, new requests are served in between.
"""

from __future__ import annotations

import asyncio
from collections import deque

WAKE_UPS_PER_TURN = 8
"""The wake-ups per turn. They cost about half a millisecond of answers."""


class WakeUps:
    """The futures to wake in one event loop, a few per turn."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._woken_in_turn = 0
        self._is_armed = False

    def wake(self, future: asyncio.Future[None]) -> None:
        """Wakes a request in this turn of the event loop, or in one of the next. A request that has timed out is
        skipped."""
        self._waiting.append(future)
        self._wake_some()

    def _wake_some(self) -> None:
        while self._waiting and self._woken_in_turn < WAKE_UPS_PER_TURN:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                self._woken_in_turn += 1
        if self._woken_in_turn and not self._is_armed:
            self._is_armed = True
            asyncio.get_running_loop().call_soon(self._on_next_turn)

    def _on_next_turn(self) -> None:
        self._is_armed = False
        self._woken_in_turn = 0
        self._wake_some()
