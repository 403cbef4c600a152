"""The timer of a member of a group, and its calls to the coordinator that are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from klamm.ordered_set import OrderedSet


class GroupCalls:
    """Lives on the running loop. `on_tick` is called when the deadline that was armed has passed."""

    def __init__(self, on_tick: Callable[[], None]) -> None:
        self._on_tick = on_tick
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: OrderedSet[asyncio.Task[None]] = OrderedSet()

    def now_ms(self) -> int:
        """The loop's clock."""
        return int(self._loop.time() * 1000)

    def arm(self, deadline_ms: int | None) -> None:
        """Ticks at the deadline, and at no other."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline_ms is not None:
            # A timer may fire up to a clock tick early; a millisecond more and the deadline has passed.
            self._timer = self._loop.call_at((deadline_ms + 1) / 1000, self._tick)

    def spawn(self, call: Coroutine[Any, Any, None], name: str) -> None:
        """Runs a call as a task of its own."""
        task = self._loop.create_task(call, name=f"klamm-group-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait_for(self, name: str, timeout_ms: int) -> None:
        """Waits until the calls of that name are over, at most `timeout_ms`."""
        calls = [task for task in self._tasks if task.get_name() == f"klamm-group-{name}"]
        if calls:
            await asyncio.wait(calls, timeout=timeout_ms / 1000)

    async def close(self) -> None:
        """Ends the timer and all calls."""
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _tick(self) -> None:
        self._timer = None
        self._on_tick()
