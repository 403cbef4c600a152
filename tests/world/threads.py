"""The threads of a simulated process.

A job runs whole at one moment, some time after it was handed over. Its result comes later, by what its disk operations
take. A job that has not begun is dropped when its future is cancelled, as `concurrent.futures` does. So races of two
threads within Python code do not happen here.
"""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.world.kernel import SECOND_US, ProcessEnded

if TYPE_CHECKING:
    from tests.world.process import SimProcess


@dataclass(eq=False, slots=True)
class Job:
    """A function that a thread calls, and the future of its result."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    future: asyncio.Future[Any]
    has_run: bool = False
    result: Any = None
    error: BaseException | None = field(default=None)

    def settle(self) -> None:
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class SimExecutor(Executor):
    """Some threads of a process, and the jobs that wait for them."""

    def __init__(self, process: SimProcess, thread_count: int, name: str) -> None:
        self._process = process
        self._world = process.world
        self._thread_count = thread_count
        self._name = name
        self._waiting: deque[Job] = deque()
        self._running: dict[Job, None] = {}
        self._is_shut = False

    def begin(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> asyncio.Future[Any]:
        """Hands a job over. This is the loop's `run_in_executor`."""
        if self._is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        job = Job(function, arguments, self._process.loop.create_future())
        self._waiting.append(job)
        self._begin_waiting()
        return job.future

    def _begin_waiting(self) -> None:
        world = self._world
        while self._waiting and len(self._running) < self._thread_count:
            job = self._waiting.popleft()
            if not job.future.cancelled():
                self._running[job] = None
                world.after(world.draw(world.timings.job_start_us), self._process.when_running, self._run, job)

    def _run(self, job: Job) -> None:
        if job.has_run:
            return
        job.has_run = True
        world, process = self._world, self._process
        with process.running(None):
            try:
                job.result = process.context.copy().run(job.function, *job.arguments)
            except ProcessEnded:
                return
            except Exception as error:  # noqa: BLE001 - the awaiting side gets it
                job.error = error
            cost_us = process.take_cost_us()
        if process.is_dead:
            return
        world.checksum = zlib.crc32(b"%d %d" % (world.now_us, cost_us), world.checksum)
        if world.trace is not None:
            world.trace.append(f"{world.now_us} {process.name}: thread {self._name} {cost_us} us")
        world.after(cost_us + world.draw(world.timings.job_end_us), process.when_running, self._finish, job)

    def _finish(self, job: Job) -> None:
        self._running.pop(job, None)
        self._begin_waiting()
        self._process.loop.call_soon(job.settle, context=self._process.context.copy())

    # The side of a caller that waits, such as another job.

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - as above
            future.set_exception(error)
        return future

    def map(self, fn: Callable[..., Any], *iterables: Any, timeout: float | None = None, **_: Any) -> Iterator[Any]:
        futures = [self.submit(fn, *arguments) for arguments in zip(*iterables, strict=False)]
        return (future.result() for future in futures)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Refuses further jobs. With `wait`, those that were handed over run now."""
        self._is_shut = True
        if cancel_futures:
            for job in self._waiting:
                job.future.cancel()
            self._waiting.clear()
        while wait and (pending := [*self._running, *self._waiting]):
            for job in pending:
                self._waiting = deque(other for other in self._waiting if other is not job)
                self._running.pop(job, None)
                if not job.future.cancelled():
                    self._run(job)
                self._running.pop(job, None)


class SimEvent(threading.Event):
    """An event that a job can wait for. The wait costs the job its virtual time."""

    def __init__(self, process: SimProcess) -> None:
        super().__init__()
        self._process = process

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None, "no other thread could set the event"
        if not self.is_set():
            self._process.spend_us(int(timeout * SECOND_US))
        return self.is_set()
