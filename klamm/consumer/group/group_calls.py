"""The timer of a group member, and its calls to the coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from klamm.client_task import client_task
from klamm.ordered_set import OrderedSet


class GroupCalls:
    """Runs one member's timer and calls on the running loop. Calls `on_tick` after the deadline that was armed."""

    def __init__(self, on_tick: Callable[[], None]) -> None:
        self._on_tick = on_tick
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: OrderedSet[asyncio.Task[None]] = OrderedSet()

    def now_ms(self) -> int:
        """Returns the time of the loop's clock in milliseconds."""
        return int(self._loop.time() * 1000)

    def arm(self, deadline_ms: int | None) -> None:
        """Sets the timer to the deadline. It replaces the previous deadline; None removes it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline_ms is not None:
            # A timer may fire up to one clock tick early, so add a millisecond.
            self._timer = self._loop.call_at((deadline_ms + 1) / 1000, self._tick)

    def spawn(self, call: Coroutine[Any, Any, None], name: str) -> None:
        """Runs a call in its own task."""
        task = client_task(call, name=f"klamm-group-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait_for(self, name: str, timeout_ms: int) -> None:
        """Waits until the calls with that name have ended, for `timeout_ms` at most."""
        calls = [task for task in self._tasks if task.get_name() == f"klamm-group-{name}"]
        if calls:
            await asyncio.wait(calls, timeout=timeout_ms / 1000)

    async def close(self) -> None:
        """Cancels the timer and all calls."""
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _tick(self) -> None:
        self._timer = None
        self._on_tick()
