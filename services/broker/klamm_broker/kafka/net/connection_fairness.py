"""Limits the time that all Kafka clients together use in one turn of the event loop.

Connections beyond the limit wait for the next turn, first come, first served. So the broker's heartbeats, and the
requests of replicas and controllers, wait for at most `TURN_MAX_S` of clients' requests and the running one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from klamm.process import PROCESS

TURN_MAX_S = 0.02


class DelayedTurn:
    """A connection that waits for a later turn."""

    __slots__ = ("begin", "is_cancelled")

    def __init__(self, begin: Callable[[], None]) -> None:
        self.begin = begin
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class ConnectionFairness:
    """Shares the turns of the event loop among connections. A connection with work to do calls `may_begin`, and if
    refused, `wait`."""

    def __init__(self, clock_s: Callable[[], float] | None = None) -> None:
        self._clock_s = clock_s or PROCESS.get().elapsed_s
        self._end_s = 0.0
        """The time when the clients' share of this turn ends, or 0 before the first call in the turn."""
        self._waiting: deque[DelayedTurn] = deque()
        self._is_serving = False

    def may_begin(self) -> bool:
        """Returns True if there is time left in this turn, and no other connection has waited for longer."""
        if not self._end_s:
            self._begin_turn()
        elif self._clock_s() >= self._end_s:
            return False
        return self._is_serving or not self._waiting

    def wait(self, begin: Callable[[], None]) -> DelayedTurn:
        """Calls `begin` in a later turn."""
        waiting = DelayedTurn(begin)
        self._waiting.append(waiting)
        return waiting

    def _begin_turn(self) -> None:
        self._end_s = self._clock_s() + TURN_MAX_S
        asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._end_s = 0.0
        if not self._waiting:
            return
        self._begin_turn()
        self._is_serving = True
        try:
            while self._waiting and self._clock_s() < self._end_s:
                waiting = self._waiting.popleft()
                if not waiting.is_cancelled:
                    waiting.begin()
        finally:
            self._is_serving = False
