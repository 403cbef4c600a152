"""What `send` returns: one outcome per batch, and per record no more than a pointer into it.

A future per record that had its own state would cost more than everything else `send` does. A BatchResult lives
as long as somebody holds a future of it; it then holds on to the records too, from which metadata is made on
demand.

Threads: the producer's loop settles, any thread may ask or add callbacks. No lock is needed: callbacks are in a
deque (whose append and popleft are atomic), and each side looks at the deque after it has said its word.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

from klamm.errors import IllegalStateError
from klamm.loop_thread import LoopThread
from klamm.model import TopicPartition
from klamm.producer.record import RecordMetadata
from klamm.records import RawRecord

log = logging.getLogger(__name__)


class Outcome(NamedTuple):
    """What happened to the records from `start` on (up to the next outcome)."""

    start: int
    base_offset: int
    """Offset of the record at `start`; -1 when nobody says."""
    log_append_time_ms: int
    """-1: records keep their own timestamps."""
    error: Exception | None


class BatchResult:
    """The outcome of the records that were appended to one batch.

    A batch that had to be split settles in parts; the result is done with the last of them."""

    __slots__ = ("_callbacks", "_done", "_outcomes", "_records", "_tp", "_unsettled")

    def __init__(self, tp: TopicPartition, records: Sequence[RawRecord]) -> None:
        self._tp = tp
        self._records = records
        self._outcomes: list[Outcome] = []
        self._unsettled = 1
        self._done = False
        self._callbacks: deque[Callable[[], object]] = deque()

    @property
    def done(self) -> bool:
        return self._done

    def split(self, parts: int) -> None:
        """One of the parts it is still waiting for became several."""
        self._unsettled += parts - 1

    def settle(self, outcome: Outcome) -> None:
        """One part's outcome."""
        assert self._unsettled > 0, self._tp
        self._outcomes.append(outcome)
        self._unsettled -= 1
        if not self._unsettled:
            self._outcomes.sort(key=lambda each: each.start)
            self._done = True
            self._run_callbacks()

    def add_done_callback(self, function: Callable[[], object]) -> None:
        """Calls `function` once, when done or, if it is done already, at once."""
        self._callbacks.append(function)
        if self._done:
            self._run_callbacks()

    def metadata(self, index: int, outcome: Outcome) -> RecordMetadata:
        """The record's metadata, given a good outcome."""
        timestamp_ms, key, value, _ = self._records[index]
        return RecordMetadata(
            self._tp.topic,
            self._tp.partition,
            -1 if outcome.base_offset < 0 else outcome.base_offset + index - outcome.start,
            timestamp_ms if outcome.log_append_time_ms < 0 else outcome.log_append_time_ms,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
        )

    def outcome_of(self, index: int) -> Outcome:
        """The outcome that covers the record; only when done."""
        return next(each for each in reversed(self._outcomes) if each.start <= index)

    def _run_callbacks(self) -> None:
        while self._callbacks:
            try:
                function = self._callbacks.popleft()
            except IndexError:
                return  # Another thread took the last one.
            try:
                function()
            except Exception:
                log.exception("done callback of partition=%s failed", self._tp)


class RecordFuture:
    """The outcome of one `Producer.send`. May be used from any thread."""

    __slots__ = ("_index", "_result")

    def __init__(self, result: BatchResult, index: int) -> None:
        self._result = result
        self._index = index

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._result.done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Waits for the record to be acknowledged; raises what went wrong.

        Raises TimeoutError when the outcome is not known after `timeout` seconds."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._result.metadata(self._index, self._result.outcome_of(self._index))

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Waits likewise and returns what went wrong, or None."""
        if not self._result.done:
            self._wait(timeout)
        return self._result.outcome_of(self._index).error

    def add_done_callback(self, function: Callable[[RecordFuture], object]) -> None:
        """Calls `function(self)` when done, on the producer's loop thread; at once if it is done already."""
        self._result.add_done_callback(lambda: function(self))

    def _wait(self, timeout: float | None) -> None:
        if LoopThread.shared().is_current():
            raise IllegalStateError("result() was called inside a callback; it would never return")
        wait_for(self._result, timeout)


def wait_for(result: BatchResult, timeout: float | None) -> None:
    """Blocks until `result` is done; raises TimeoutError after `timeout` seconds."""
    done = threading.Event()
    result.add_done_callback(done.set)
    if not done.wait(timeout):
        raise TimeoutError(f"no outcome after {timeout} s")


class AsyncRecordFuture:
    """The outcome of one `AsyncProducer.send`; await it. Belongs to the producer's event loop."""

    __slots__ = ("_index", "_result")

    def __init__(self, result: BatchResult, index: int) -> None:
        self._result = result
        self._index = index

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._result.done

    def result(self) -> RecordMetadata:
        """The outcome; raises what went wrong, or asyncio.InvalidStateError while it is not known."""
        error = self.exception()
        if error is not None:
            raise error
        return self._result.metadata(self._index, self._result.outcome_of(self._index))

    def exception(self) -> Exception | None:
        """What went wrong, or None; raises asyncio.InvalidStateError while the outcome is not known."""
        if not self._result.done:
            raise asyncio.InvalidStateError("the outcome is not known yet")
        return self._result.outcome_of(self._index).error

    def add_done_callback(self, function: Callable[[AsyncRecordFuture], object]) -> None:
        """Calls `function(self)` when done; at once if it is done already."""
        self._result.add_done_callback(lambda: function(self))

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self._result.done:
            yield from until_done(self._result).__await__()
        return self.result()


def until_done(result: BatchResult) -> asyncio.Future[None]:
    """A future of the running loop that is resolved when `result` is done."""
    waiter = asyncio.get_running_loop().create_future()

    def resolve() -> None:
        if not waiter.done():
            waiter.set_result(None)

    result.add_done_callback(resolve)
    return waiter
