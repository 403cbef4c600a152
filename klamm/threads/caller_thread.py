"""Waiting for the loop thread without giving up one's own thread's say: user code runs in the user's thread.

While a thread waits for a coroutine on the shared event loop, the coroutine may pass functions to the thread and await
their results. A rebalance listener is an example. Such a function may call the loop and wait in turn, because the loop
is free."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from klamm.threads.loop_call import LoopCall
from klamm.threads.loop_thread import LoopThread

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")


class CallerThread:
    """Runs coroutines for one calling thread at a time. Another thread may use it after a call has ended."""

    def __init__(self, loop_thread: LoopThread) -> None:
        self._loop_thread = loop_thread
        self._inbox: SimpleQueue[Callable[[], None] | None] | None = None
        """The queue of the coroutine that `run` waits for."""

    def run(self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a coroutine function on the loop and returns its result, like `LoopThread.run`. While this thread waits,
        it calls the functions that the coroutine passes to `invoke`."""
        self._loop_thread.refuse_to_wait_here()
        outer = self._inbox
        call = LoopCall(self._loop_thread.loop, function, *args, **kwargs)
        with self._loop_thread.unlocked():
            try:
                self._inbox = call.inbox
                call.begin()
                return call.result()
            finally:
                call.end()
                self._inbox = outer

    async def invoke(self, function: Callable[[A], object], argument: A) -> None:
        """Calls `function` in the thread that waits in `run`, and raises its exception. Only the coroutine that `run`
        waits for may call this."""
        inbox = self._inbox
        assert inbox is not None, "nobody waits"
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def call() -> None:
            outcome: Exception | None = None
            try:
                function(argument)
            except Exception as error:  # noqa: BLE001 - it is raised again where it belongs, in the poll
                # Raise a KeyboardInterrupt only in the waiting thread. On the loop it would end the loop.
                outcome = error
            loop.call_soon_threadsafe(_settle, done, outcome)

        inbox.put(call)
        await done


def _settle(future: asyncio.Future[None], outcome: Exception | None) -> None:
    if future.cancelled():
        return
    if outcome is None:
        future.set_result(None)
    else:
        future.set_exception(outcome)
