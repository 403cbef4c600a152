"""Waiting for the loop thread without giving up one's own thread's say: user code runs in the user's thread.

While a thread waits for a coroutine on the shared event loop, the coroutine may hand it functions to call
(a rebalance listener, say) and awaits their outcome. Those may wait for the loop in turn: it is free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, TypeVar

from klamm.errors import IllegalStateError
from klamm.loop_thread import LoopThread

T = TypeVar("T")
A = TypeVar("A")

_Inbox = SimpleQueue[Callable[[], None] | None]
"""Functions to call; None: the coroutine is done."""


class CallerThread:
    """For one user at a time; whose thread it is may change between calls."""

    def __init__(self, loop_thread: LoopThread) -> None:
        self._loop_thread = loop_thread
        self._inboxes: list[_Inbox] = []

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs `coroutine` on the loop; meanwhile calls here what it passes to `invoke`.

        Raises IllegalStateError on the loop's own thread, where it would never return."""
        if self._loop_thread.is_current():
            coroutine.close()
            raise IllegalStateError("a blocking call was made inside a callback; it would never return")
        inbox: _Inbox = SimpleQueue()
        self._inboxes.append(inbox)
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop_thread.loop)
        try:
            future.add_done_callback(lambda _: inbox.put(None))
            while (function := inbox.get()) is not None:
                function()
            return future.result()
        except BaseException:
            future.cancel()
            raise
        finally:
            self._inboxes.remove(inbox)

    async def invoke(self, function: Callable[[A], object], argument: A) -> None:
        """From a coroutine that `run` waits for: calls `function` in the waiting thread; raises what it raises."""
        assert self._inboxes, "nobody waits"
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def call() -> None:
            outcome: Exception | None = None
            try:
                function(argument)
            except Exception as error:  # noqa: BLE001 - it is raised again where it belongs, in the poll
                # A KeyboardInterrupt is for the waiting thread alone: on the loop it would end the loop.
                outcome = error
            loop.call_soon_threadsafe(_settle, done, outcome)

        self._inboxes[-1].put(call)
        await done


def _settle(future: asyncio.Future[None], outcome: Exception | None) -> None:
    if future.cancelled():
        return
    if outcome is None:
        future.set_result(None)
    else:
        future.set_exception(outcome)
