"""The event loop of one simulated process. The world turns it.

Within a process, callbacks run first in, first out, as asyncio promises. Between processes, the world decides about the
order. A callback takes no time by itself, but the disk operations in it do.
"""

from __future__ import annotations

import asyncio
import contextvars
import socket
import sys
import zlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

from tests.world.kernel import SECOND_US, ProcessEnded
from tests.world.threads import SimExecutor

if TYPE_CHECKING:
    from tests.world.process import SimProcess

DEFAULT_THREADS = 16


class Callback:
    """A call that the loop makes. It is an asyncio.Handle, or a TimerHandle with `when`."""

    __slots__ = ("_arguments", "_context", "_function", "_when", "is_cancelled")

    def __init__(
        self,
        function: Callable[..., object],
        arguments: tuple[Any, ...],
        context: contextvars.Context | None,
        when: float = 0.0,
    ) -> None:
        self._function = function
        self._arguments = arguments
        self._context = contextvars.copy_context() if context is None else context
        self._when = when
        self.is_cancelled = False

    def __str__(self) -> str:
        owner = getattr(self._function, "__self__", None)
        if isinstance(owner, asyncio.Task):
            return f"task {owner.get_name()}"
        return str(getattr(self._function, "__qualname__", type(self._function).__qualname__))

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self._when

    def run(self) -> None:
        self._context.run(self._function, *self._arguments)


class SimLoop(asyncio.AbstractEventLoop):
    """An event loop in virtual time. It has what Klamm and aiokafka use of asyncio's loop."""

    def __init__(self, process: SimProcess) -> None:
        self._process = process
        self._world = process.world
        self._ready: deque[Callback] = deque()
        self._has_turn = False
        self._threads = SimExecutor(process, DEFAULT_THREADS, "default")
        self.on_signal: dict[int, Callable[[], object]] = {}
        self._on_exception: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None

    def time(self) -> float:
        return self._process.monotonic_us() / SECOND_US

    # Callbacks

    def call_soon(self, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:  # type: ignore[override]
        handle = Callback(callback, args, context)
        self._append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:  # type: ignore[override]
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:  # type: ignore[override]
        timer = Callback(callback, args, context, when)
        due_us = self._process.world_us(when)
        self._world.at(max(due_us, self._world.now_us + 1), self._on_due, timer)
        return timer

    def _on_due(self, timer: Callback) -> None:
        if not timer.is_cancelled:
            self._append(timer)

    def _append(self, handle: Callback) -> None:
        if self._process.is_dead:
            return
        self._ready.append(handle)
        if not self._has_turn:
            self._plan_turn()

    def _plan_turn(self) -> None:
        self._has_turn = True
        world = self._world
        begin_us = max(world.now_us, self._process.busy_until_us) + world.draw(world.timings.turn_us)
        world.at(begin_us, self._process.when_running, self._turn)

    def _turn(self) -> None:
        """Runs the callbacks that are ready now. Those that they add run in the next turn."""
        process, world, ready = self._process, self._world, self._ready
        count = len(ready)
        world.checksum = zlib.crc32(b"%d %d" % (world.now_us, count), world.checksum)
        with process.running(self):
            for _ in range(count):
                handle = ready.popleft()
                if handle.is_cancelled:
                    continue
                if world.trace is not None:
                    world.trace.append(f"{world.now_us} {process.name}: {handle}")
                self._run(handle)
                if process.is_dead:
                    return
        process.busy_until_us = world.now_us + process.take_cost_us()
        self._has_turn = False
        if ready:
            self._plan_turn()

    def _run(self, handle: Callback) -> None:
        try:
            handle.run()
        except ProcessEnded:
            return
        except Exception as error:  # noqa: BLE001 - as asyncio: an exception of a callback goes to the handler
            self.call_exception_handler({"message": f"exception in {handle}", "exception": error})

    def forget_callbacks(self) -> None:
        """Drops all callbacks, when the process has died."""
        self._ready.clear()

    # Tasks, futures and generators

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Any,
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name, context=context, **options)

    def on_generator_left(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Closes an asynchronous generator that was left before its end."""
        if not self._process.is_dead:
            closing: Coroutine[Any, Any, Any] = generator.aclose()
            self.call_soon(self.create_task, closing)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def set_exception_handler(self, handler: Any) -> None:
        self._on_exception = handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._process.is_dead:
            return
        self._world.errors.append(f"{self._process.name}: {context.get('message')}: {context.get('exception')!r}")
        if self._on_exception is not None:
            try:
                self._on_exception(self, context)
            except ProcessEnded:
                return

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Does nothing more: the world has noted the exception."""

    # Threads, signals and names

    def run_in_executor(self, executor: Executor | None, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        threads = self._threads if executor is None else executor
        assert isinstance(threads, SimExecutor), f"{threads}: a process of the world makes its threads by PROCESS"
        return threads.begin(func, args)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        self._threads.shutdown()

    def add_signal_handler(self, sig: int, callback: Any, *args: Any) -> None:  # type: ignore[override]
        self.on_signal[sig] = lambda: callback(*args)

    def remove_signal_handler(self, sig: int) -> bool:
        return self.on_signal.pop(sig, None) is not None

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]


def install_generator_hooks(loop: SimLoop) -> None:
    sys.set_asyncgen_hooks(firstiter=lambda _: None, finalizer=loop.on_generator_left)
