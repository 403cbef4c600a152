"""The futures that `send` returns. Each is only a pointer into the result of a batch.

A future with its own state would cost more than all other work of `send`."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final

from klamm.core import core
from klamm.producer.record import RecordMetadata
from klamm.producer.result import BatchResult
from klamm.threads.loop_thread import LoopThread
from klamm.threads.waiting_threads import WakeUps, woken

_DONE_CALLBACK: Final = "a done callback of a record"


class RecordFuture:
    """The outcome of one `Producer.send`. May be used from any thread."""

    __slots__ = ("_index", "_result")

    def __init__(self, result: BatchResult, index: int) -> None:
        self._result = result
        self._index = index

    def done(self) -> bool:
        """Returns whether the outcome is known."""
        return self._result.done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Waits until the record is acknowledged, and returns its metadata. Raises the record's error.

        Raises TimeoutError if the outcome is not known after `timeout` seconds."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._result.metadata(self._index, self._result.outcome_of(self._index))

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """The same as `result`, under the name that it has in kafka-python and Kafka's Java client."""
        return self.result(timeout)

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Waits like `result`, and returns the record's error or None."""
        if not self._result.done:
            wait_for(self._result, timeout)
        return self._result.outcome_of(self._index).error

    def add_done_callback(self, function: Callable[[RecordFuture], object]) -> None:
        """Calls `function(self)` on the producer's loop thread when the outcome is known. Calls it at once if it is
        known already."""
        call_when_done(self, function)

    def __repr__(self) -> str:
        return f"<RecordFuture {self._result.describe(self._index)}>"


def call_when_done(future: Any, function: Callable[[Any], object]) -> None:
    """Calls `function(future)` when the outcome of the record is known."""
    result = future._result
    result.add_done_callback(lambda: result.calls.call(_DONE_CALLBACK, function, future))


class BatchFuture:
    """The outcome of one `Producer.send_packed`. May be used from any thread."""

    __slots__ = ("_result",)

    def __init__(self, result: BatchResult) -> None:
        self._result = result

    def result(self, timeout: float | None = None) -> None:
        """Waits until all records are acknowledged. Raises the error of the first record that failed.

        Raises TimeoutError if the outcome is not known after `timeout` seconds."""
        if not self._result.done:
            wait_for(self._result, timeout)
        if self._result.error is not None:
            raise self._result.error


Run = list[Any]
"""Neighbouring records of one batch: [result, first index, last index]."""


def run_of(future: Any) -> Run:
    """Returns the run of one record."""
    return [future._result, future._index, future._index]


class ManyFuture:
    """The outcome of one `Producer.send_many`. May be used from any thread."""

    __slots__ = ("_count", "_runs")

    def __init__(self, runs: list[Run]) -> None:
        self._runs = runs
        self._count: int = sum(last - first + 1 for _, first, last in runs)

    def __len__(self) -> int:
        return self._count

    def done(self) -> bool:
        """Returns whether the outcomes of all records are known."""
        return all(result.done for result, _, _ in self._runs)

    def result(self, timeout: float | None = None) -> int:
        """Waits until all records are acknowledged, and returns their number. Raises the error of the first record that
        failed; the others may have been written.

        Raises TimeoutError if an outcome is not known after `timeout` seconds."""
        deadline_s = None if timeout is None else time.monotonic() + timeout
        for result, _, _ in self._runs:
            if not result.done:
                wait_for(result, None if deadline_s is None else max(0.0, deadline_s - time.monotonic()))
        return _counted(self._runs, self._count)


class AsyncManyFuture:
    """The outcome of one `AsyncProducer.send_many`. Await it for the number of records. It belongs to the producer's
    event loop."""

    __slots__ = ("_count", "_runs")

    def __init__(self, runs: list[Run]) -> None:
        self._runs = runs
        self._count: int = sum(last - first + 1 for _, first, last in runs)

    def __len__(self) -> int:
        return self._count

    def done(self) -> bool:
        """Returns whether the outcomes of all records are known."""
        return all(result.done for result, _, _ in self._runs)

    def __await__(self) -> Generator[Any, None, int]:
        for result, _, _ in self._runs:
            if not result.done:
                yield from until_done(result).__await__()
        return _counted(self._runs, self._count)


def _counted(runs: list[Run], count: int) -> int:
    """Returns the number of records, or raises the first error. The outcomes are known."""
    for result, first, last in runs:
        for error in result.errors_of(first, last):
            raise error
    return count


def wait_for(result: BatchResult, timeout: float | None) -> None:
    """Blocks until `result` is done. Raises TimeoutError after `timeout` seconds, and as `UserCalls.raise_exit`."""
    loop_thread = LoopThread.shared()
    loop_thread.refuse_to_wait_here()
    wake_ups = WakeUps()
    wake_up = functools.partial(wake_ups.put, None)
    try:
        result.add_done_callback(wake_up)
        with loop_thread.unlocked():
            if not woken(wake_ups, timeout):
                raise TimeoutError(f"no outcome after {timeout} s")
    finally:
        result.remove_done_callback(wake_up)
    result.calls.raise_exit()


class AsyncRecordFuture:
    """The outcome of one `AsyncProducer.send`. Await it for the metadata. It belongs to the producer's event loop."""

    __slots__ = ("_index", "_result")

    def __init__(self, result: BatchResult, index: int) -> None:
        self._result = result
        self._index = index

    def done(self) -> bool:
        """Returns whether the outcome is known."""
        return self._result.done

    def result(self) -> RecordMetadata:
        """Returns the record's metadata, or raises its error. Raises asyncio.InvalidStateError while the outcome is not
        known."""
        error = self.exception()
        if error is not None:
            raise error
        return self._result.metadata(self._index, self._result.outcome_of(self._index))

    def exception(self) -> Exception | None:
        """Returns the record's error, or None. Raises asyncio.InvalidStateError while the outcome is not known."""
        if not self._result.done:
            raise asyncio.InvalidStateError("the outcome is not known yet")
        return self._result.outcome_of(self._index).error

    def add_done_callback(self, function: Callable[[AsyncRecordFuture], object]) -> None:
        """Calls `function(self)` when the outcome is known. Calls it at once if it is known already."""
        call_when_done(self, function)

    def __repr__(self) -> str:
        return f"<AsyncRecordFuture {self._result.describe(self._index)}>"

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return wait_on_loop(self)


def wait_on_loop(future: AsyncRecordFuture) -> Generator[Any, None, RecordMetadata]:
    """Waits until the outcome is known. Returns the record's metadata, or raises its error."""
    if not future._result.done:
        yield from until_done(future._result).__await__()
    return future.result()


def until_done(result: BatchResult) -> asyncio.Future[None]:
    """Returns a future of the running loop that completes when `result` is done."""
    waiter = asyncio.get_running_loop().create_future()

    def resolve() -> None:
        if not waiter.done():
            waiter.set_result(None)

    result.add_done_callback(resolve)
    waiter.add_done_callback(lambda _: result.remove_done_callback(resolve))
    return waiter


if core is not None and not TYPE_CHECKING:
    RecordFuture, AsyncRecordFuture = core.RecordFuture, core.AsyncRecordFuture
    core.use_future(wait_for, call_when_done, wait_on_loop)
