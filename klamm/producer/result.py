"""The outcome of a batch, told once and shared by all its records.

A BatchResult lives as long as somebody holds a future of it; it then holds on to the records too, from which
metadata is made on demand.

The producer's loop settles, any thread may ask or add callbacks. No lock is needed: callbacks are in a deque
(whose append and popleft are atomic), and each side looks at the deque after it has said its word.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from klamm.errors import OtherRecordsInvalidError
from klamm.model import TopicPartition
from klamm.producer.record import RecordMetadata
from klamm.records import RawRecord


class RecordsOutcome(NamedTuple):
    """What happened to the records from `start` on (up to the next outcome)."""

    start: int
    base_offset: int
    """The offset of the record at `start`, or -1 if the broker does not answer."""
    log_append_time_ms: int
    """-1: records keep their own timestamps."""
    error: Exception | None


def outcome_at(outcomes: Sequence[RecordsOutcome], index: int) -> RecordsOutcome:
    """The one of these, by `start` in order, that covers the record."""
    return outcomes[bisect_right(outcomes, index, key=_start_of) - 1]


def _start_of(outcome: RecordsOutcome) -> int:
    return outcome.start


class BatchResult:
    """The outcome of the records that were appended to one batch.

    A batch that had to be split settles in parts; the result is done with the last of them."""

    __slots__ = ("_callbacks", "_done", "_outcomes", "_records", "_tp", "_unsettled")

    def __init__(self, tp: TopicPartition, records: Sequence[RawRecord]) -> None:
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
        """One of the parts it is still waiting for became several."""
        self._unsettled += parts - 1

    def settle(self, *outcomes: RecordsOutcome) -> None:
        """One part's outcome, or several where its records fared differently."""
        assert self._unsettled > 0, self._tp
        self._outcomes += outcomes
        self._unsettled -= 1
        if not self._unsettled:
            self._outcomes.sort(key=lambda each: each.start)
            self._done = True
            self._run_callbacks()

    def add_done_callback(self, function: Callable[[], object]) -> None:
        """Calls `function`, which must not raise, once: when done or, if it is done already, at once."""
        self._callbacks.append(function)
        if self._done:
            self._run_callbacks()

    def metadata(self, index: int, outcome: RecordsOutcome) -> RecordMetadata:
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

    @property
    def error(self) -> Exception | None:
        """What went wrong with the first record that is to blame for anything; only when done."""
        errors = [each.error for each in self._outcomes if each.error is not None]
        own = (error for error in errors if not isinstance(error, OtherRecordsInvalidError))
        return next(own, errors[0] if errors else None)

    def outcome_of(self, index: int) -> RecordsOutcome:
        """The outcome that covers the record; only when done."""
        return outcome_at(self._outcomes, index)

    def _run_callbacks(self) -> None:
        while self._callbacks:
            try:
                function = self._callbacks.popleft()
            except IndexError:
                return  # Another thread took the last one.
            function()
