"""One call of a coroutine function on an event loop, from another thread, which may be interrupted.

A signal may arrive between any two instructions of the calling thread. So the loop makes the coroutine, because one
made in the caller's thread could be left behind and never awaited. The caller has its handle before it submits the call
to the loop. `end` returns only when no part of the call runs any more.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class LoopCall(Generic[T]):
    """One call. Use `begin`, wait for `outcome`, and call `end` in the finally clause of the same try statement."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        function: Callable[P, Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        self.outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
        """The result or exception of the coroutine. It is concurrent.futures.CancelledError if the coroutine was
        cancelled."""
        self._loop = loop
        self._make: Callable[[], Coroutine[Any, Any, T]] = functools.partial(function, *args, **kwargs)
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> None:
        """Submits the call to the loop."""
        self._loop.call_soon_threadsafe(self._start)

    def end(self) -> None:
        """Cancels the coroutine if it still runs, and waits until it has ended."""
        if self.outcome.done():
            return
        self._loop.call_soon_threadsafe(self._cancel)
        with contextlib.suppress(concurrent.futures.CancelledError):
            self.outcome.exception()

    def _start(self) -> None:
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._settle)

    async def _run(self) -> T:
        return await self._make()

    def _cancel(self) -> None:
        if self._task is None:
            self.outcome.cancel()  # The signal came before the loop began the call.
        else:
            self._task.cancel()

    def _settle(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.outcome.cancel()
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())
