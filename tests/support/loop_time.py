"""An event loop whose time a test does not have to wait for.

The time of a `LoopWithOwnTime` does not advance while a task can run. When every task waits for a timer, the time jumps
to the next timer. The loop is for tasks that wait only for each other and for timers. It does not know about work in
threads or other processes, so its time may jump during such work.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def loop_time_s() -> float:
    """Returns the time of the running loop in seconds. It is monotonic, and virtual in a simulation."""
    return asyncio.get_running_loop().time()


class _JumpingSelector(selectors.BaseSelector):
    """A selector that passes over the time for which it would have to wait."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.now_s = 0.0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(None if timeout is None else 0)
        if not ready and timeout:
            self.now_s += timeout
        return ready

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()


class LoopWithOwnTime(asyncio.SelectorEventLoop):
    """The event loop of the module's docstring. Its time begins at 0."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Returns the seconds that have passed for this loop."""
        return self._jumping.now_s

    def advance(self, seconds: float) -> None:
        """Lets the time pass at once, as a task does that blocks the loop."""
        self._jumping.now_s += seconds


class LoopClock:
    """A clock that shows the time of the running loop."""

    def monotonic_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    def wall_ms(self) -> int:
        return self.monotonic_ms()


def run_without_waiting(main: Coroutine[Any, Any, T]) -> T:
    """Runs `main` in a `LoopWithOwnTime` and returns its result."""
    with asyncio.Runner(loop_factory=LoopWithOwnTime) as runner:
        return runner.run(main)
