"""The result of a batch, which all its records share.

A BatchResult lives as long as a future refers to it. It keeps the records too, because metadata is made from them on
demand. Packed records have no metadata, so they are dropped when they are settled.

The producer's loop settles a result. Any thread may read it or add callbacks. No lock is needed, because append and
popleft of the deque with the callbacks are atomic. Both sides run the callbacks after their own change, so none is
missed."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from klamm.core import COMPILED_BATCHES
from klamm.errors import OtherRecordsInvalidError
from klamm.model import TopicPartition
from klamm.producer.record import RecordMetadata
from klamm.producer.user_calls import UserCalls
from klamm.records import PackedRecords, RawRecord

DeliveryCallback = Callable[[RecordMetadata | None, Exception | None], object]
"""A callback with the record's metadata and None, or with None and the error."""


class RecordsOutcome(NamedTuple):
    """The outcome of the records from index `start` to the next outcome."""

    start: int
    base_offset: int
    """The offset of the record at `start`, or -1 if the broker does not answer."""
    log_append_time_ms: int
    """The broker's timestamp, or -1 if records keep their own timestamps."""
    error: Exception | None


def outcome_at(outcomes: Sequence[RecordsOutcome], index: int) -> RecordsOutcome:
    """Returns the outcome that covers the record. `outcomes` are sorted by `start`."""
    return outcomes[bisect_right(outcomes, index, key=_start_of) - 1]


def _start_of(outcome: RecordsOutcome) -> int:
    return outcome.start


def _sizes(records: Sequence[RawRecord], index: int) -> tuple[int, int, int]:
    """Returns the timestamp of a record in ms, and the sizes of its key and value in bytes. -1 stands for a null."""
    if isinstance(records, COMPILED_BATCHES):
        sizes: tuple[int, int, int] = records.sizes(index)
        return sizes
    timestamp_ms, key, value, _ = records[index]
    return timestamp_ms, -1 if key is None else len(key), -1 if value is None else len(value)


class BatchResult:
    """The result of the records that were appended to one batch.

    A batch that was split settles in parts. The result is done after the last part."""

    __slots__ = ("_callbacks", "_done", "_outcomes", "_records", "_tp", "_unsettled", "calls")

    def __init__(self, tp: TopicPartition, records: Sequence[RawRecord], calls: UserCalls) -> None:
        self.calls = calls
        """The calls of functions of the application by this producer."""
        self._tp = tp
        self._records = records
        self._outcomes: list[RecordsOutcome] = []
        self._unsettled = 1
        self._done = False
        self._callbacks: deque[Callable[[], object]] = deque()

    @property
    def done(self) -> bool:
        return self._done

    def split(self, parts: int) -> None:
        """Notes that one of the unsettled parts was split into several."""
        self._unsettled += parts - 1

    def settle(self, *outcomes: RecordsOutcome) -> None:
        """Settles one part with its outcome, or with several if its records have different outcomes."""
        assert self._unsettled > 0, self._tp
        self._outcomes += outcomes
        self._unsettled -= 1
        if not self._unsettled:
            self._outcomes.sort(key=lambda outcome: outcome.start)
            self._done = True
            if isinstance(self._records, COMPILED_BATCHES):
                self._records.forget()
            elif isinstance(self._records, PackedRecords):
                self._records = ()
            self._run_callbacks()

    def add_done_callback(self, function: Callable[[], object]) -> None:
        """Calls `function` once when the result is done, or at once if it is done already. `function` must not
        raise.
        """
        self._callbacks.append(function)
        if self._done:
            self._run_callbacks()

    def remove_done_callback(self, function: Callable[[], object]) -> None:
        """Removes a callback of `add_done_callback`, because nothing waits for it any more. It may have been called."""
        with contextlib.suppress(ValueError):
            self._callbacks.remove(function)

    def metadata(self, index: int, outcome: RecordsOutcome) -> RecordMetadata:
        """Returns the metadata of a record that has a successful outcome."""
        timestamp_ms, key_size, value_size = _sizes(self._records, index)
        return RecordMetadata(
            self._tp.topic,
            self._tp.partition,
            -1 if outcome.base_offset < 0 else outcome.base_offset + index - outcome.start,
            timestamp_ms if outcome.log_append_time_ms < 0 else outcome.log_append_time_ms,
            key_size,
            value_size,
        )

    def describe(self, index: int) -> str:
        """Returns a record's partition and outcome as text."""
        if not self._done:
            return f"{self._tp} waiting"
        outcome = self.outcome_of(index)
        if outcome.error is not None:
            return f"{self._tp} error={outcome.error!r}"
        return f"{self._tp} offset={self.metadata(index, outcome).offset}"

    @property
    def error(self) -> Exception | None:
        """The error of the first record that is invalid itself, or else the first error, or None. Valid only when
        done.
        """
        errors = [outcome.error for outcome in self._outcomes if outcome.error is not None]
        own = (error for error in errors if not isinstance(error, OtherRecordsInvalidError))
        return next(own, errors[0] if errors else None)

    def outcome_of(self, index: int) -> RecordsOutcome:
        """Returns the outcome that covers the record. Valid only when done."""
        return outcome_at(self._outcomes, index)

    def errors_of(self, first: int, last: int) -> list[Exception]:
        """Returns the errors of the records from index `first` to `last`, one for each outcome. Valid only when
        done."""
        begin = bisect_right(self._outcomes, first, key=_start_of) - 1
        end = bisect_right(self._outcomes, last, key=_start_of)
        return [outcome.error for outcome in self._outcomes[begin:end] if outcome.error is not None]

    def deliver(self, index: int, outcome: RecordsOutcome, callback: DeliveryCallback) -> None:
        """Calls a record's callback with its outcome."""
        metadata = None if outcome.error else self.metadata(index, outcome)
        self.calls.call("on_delivery", callback, metadata, outcome.error)

    def _run_callbacks(self) -> None:
        while self._callbacks:
            try:
                function = self._callbacks.popleft()
            except IndexError:
                return  # Another thread has taken the last callback.
            function()
