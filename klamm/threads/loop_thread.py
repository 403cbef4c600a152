"""The one background event loop that the synchronous clients of a process share.

It starts with the first client and ends with the process. A forked child does not inherit the thread, so it
gets a loop of its own on first use; clients made before the fork belong to the parent (klamm/rpc/grpc_transport.py says
why a child of a process with clients gets none at all).

At the exit of a program, functions of `atexit` may still use clients, and so may logging handlers, which
`logging.shutdown` closes. No function of `atexit` can come after all others. So none stops the loop: its thread is a
daemon, which runs until the interpreter has called them all. Then Python destroys the thread's local variables
(threading.local). The destructor of one of them calls the functions that were passed to `at_end`.

A signal handler or a destructor may use a client while its thread is in the middle of a client's method. So `lock` is
reentrant, and a thread gives it up completely while it waits for the loop, because the loop needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, ClassVar, ParamSpec, TypeVar

from klamm.client_task import tasks_of_clients
from klamm.core import new_lock
from klamm.errors import IllegalStateError
from klamm.threads.green_threads import refuse_green_threads
from klamm.threads.loop_call import LoopCall

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


_at_end: list[Callable[[], object]] = []
_locals = threading.local()


def at_end(function: Callable[[], object]) -> None:
    """Calls `function` when the process ends, after all functions of `atexit`. Then no loop runs any more. The process
    must have a loop thread. A function that was passed twice is called once."""
    if function not in _at_end:
        _at_end.append(function)


class _End:
    """A local variable of the loop's thread, which Python destroys when the process ends."""

    def __del__(self) -> None:
        # A fork destroys it too, in the child.
        if sys.is_finalizing():
            for function in _at_end:
                function()


class LoopThread:
    """A daemon thread that runs an event loop. Use `LoopThread.shared()`."""

    _shared: ClassVar[LoopThread | None] = None
    _shared_lock: ClassVar[threading.RLock] = threading.RLock()

    def __init__(self) -> None:
        refuse_green_threads()
        self.lock = new_lock()
        """Guards what the loop and the threads of the application share. Hold it only for short work, and not while
        waiting for the loop."""
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(_handle_loop_exception)
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run_loop, name="klamm-loop", daemon=True)
        self._thread.start()

    @classmethod
    def shared(cls) -> LoopThread:
        """Returns the process's loop thread. Starts it on first use. Raises IllegalStateError if the process ends."""
        with cls._shared_lock:
            if cls._shared is None or not cls._shared._thread.is_alive():
                refuse_at_end()
                cls._shared = cls()
            return cls._shared

    def is_current(self) -> bool:
        """Returns whether the caller runs on this loop. Waiting for the loop would then never end."""
        return threading.current_thread() is self._thread

    def run(self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls the coroutine function `function` on the loop, and returns its result or raises its error.

        If the wait is interrupted (Ctrl-C), cancels the coroutine and raises after it has ended. Raises
        IllegalStateError on the loop's own thread, which is inside a callback."""
        self.refuse_to_wait_here()
        call = LoopCall(self.loop, function, *args, **kwargs)
        with self.unlocked():
            try:
                call.begin()
                return call.result()
            finally:
                call.end()

    @contextlib.contextmanager
    def unlocked(self) -> Iterator[None]:
        """Releases `lock` for a block that waits for the loop. This thread holds `lock` if a signal handler or a
        destructor interrupted a method of a client."""
        held_count = 0
        with contextlib.suppress(RuntimeError):
            while True:
                self.lock.release()
                held_count += 1
        try:
            yield
        finally:
            self._take_back(held_count)

    def _take_back(self, held_count: int) -> None:
        """Acquires `lock` `held_count` times. Raises the exception of a signal handler only after that."""
        interrupt: BaseException | None = None
        while held_count:
            try:
                self.lock.acquire()
                held_count -= 1
            except BaseException as error:  # noqa: BLE001 - it is raised below
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def refuse_to_wait_here(self) -> None:
        """Raises IllegalStateError on the loop's own thread, and if the process ends."""
        refuse_at_end()
        if self.is_current():
            raise IllegalStateError("a blocking call was made inside a callback; it would never return")

    def call_soon(self, function: Callable[..., object], *args: Any) -> None:
        """Calls `function` on the loop's thread, without waiting."""
        self.loop.call_soon_threadsafe(function, *args)

    def stop(self) -> None:
        """Cancels all tasks on the loop, ends the loop and joins the thread."""
        self._is_stopping = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _run_loop(self) -> None:
        _locals.end = _End()
        try:
            while not self._is_stopping:
                try:
                    self.loop.run_forever()
                except BaseException:
                    # A function of the application raised SystemExit or the like on this thread.
                    log.exception("the event loop continues after an exception that ended it")
        finally:
            self.loop.run_until_complete(self._cancel_tasks())
            self.loop.close()

    async def _cancel_tasks(self) -> None:
        tasks = [*(asyncio.all_tasks() - {asyncio.current_task()}), *tasks_of_clients(self.loop)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @classmethod
    def _forget_after_fork(cls) -> None:
        cls._shared_lock = threading.RLock()
        cls._shared = None


def refuse_at_end() -> None:
    """Raises IllegalStateError if the process ends and has no loop any more. A destructor may use a client then."""
    if sys.is_finalizing():
        raise IllegalStateError("the process is ending; expected calls before all functions of atexit have run")


def _handle_loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs an error of the loop, except two harmless messages of gRPC, which has one queue for all event loops.

    gRPC wakes all event loops of a process when one of them has work. The loops that find no wake-up to read get
    EAGAIN. The loop that reads the wake-up may also find the end of a cancelled call whose own loop is closed."""
    exception = context.get("exception")
    is_harmless = isinstance(exception, BlockingIOError) or str(exception) == "Event loop is closed"
    if is_harmless and "PollerCompletionQueue" in str(context.get("handle")):
        return
    loop.default_exception_handler(context)


if hasattr(os, "register_at_fork"):  # Windows has no fork.
    os.register_at_fork(after_in_child=LoopThread._forget_after_fork)
