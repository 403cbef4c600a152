"""One call of a coroutine function on an event loop, from another thread, which may be interrupted.

A signal may arrive between any two instructions of the calling thread. So the loop makes the coroutine, because one
made in the caller's thread could be left behind and never awaited. The caller has its handle before it submits the call
to the loop. `end` returns only when no part of the call runs any more. The caller waits at a SimpleQueue, for the
reason that `waiting_threads` gives.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class LoopCall(Generic[T]):
    """One call. Use `begin` and `result`, and call `end` in the finally clause of the same try statement."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        function: Callable[P, Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        self.inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        """Functions for the waiting thread to call. None says that the coroutine has ended."""
        self._loop = loop
        self._make: Callable[[], Coroutine[Any, Any, T]] = functools.partial(function, *args, **kwargs)
        self._task: asyncio.Task[T] | None = None
        self._has_ended = False

    def begin(self) -> None:
        """Submits the call to the loop."""
        self._loop.call_soon_threadsafe(self._start)

    def result(self) -> T:
        """Calls the functions in `inbox` until the coroutine has ended. Returns its result or raises its exception.
        Raises concurrent.futures.CancelledError if the coroutine was cancelled."""
        while (function := self.inbox.get()) is not None:
            function()
        if self._task is None or self._task.cancelled():
            raise concurrent.futures.CancelledError
        return self._task.result()

    def end(self) -> None:
        """Cancels the coroutine if it still runs, and waits until it has ended."""
        if self._has_ended:
            return
        self._loop.call_soon_threadsafe(self._cancel)
        while self.inbox.get() is not None:
            """The caller no longer waits for the function."""

    def _start(self) -> None:
        if self._has_ended:
            return
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._note_end)

    async def _run(self) -> T:
        return await self._make()

    def _cancel(self) -> None:
        if self._task is None:
            self._note_end()  # The signal came before the loop began the call.
        else:
            self._task.cancel()

    def _note_end(self, _: object = None) -> None:
        self._has_ended = True
        self.inbox.put(None)
