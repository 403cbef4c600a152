"""One record batch of one partition on its way: filled, closed, sent, settled.

A batch accepts records while it is open. Its size is an upper bound of its uncompressed size. It shares a BatchResult
with the futures of its records. After a split, several batches share the result, each from its own `start`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klamm.core import core
from klamm.errors import BrokerError, ErrorCode, OtherRecordsInvalidError
from klamm.model import TopicPartition
from klamm.producer.result import BatchResult, DeliveryCallback, RecordsOutcome
from klamm.producer.user_calls import UserCalls
from klamm.records import HEADER_SIZE_BYTES, RawRecord, estimate_size_bytes, increment_sequence
from klamm.records.header import Buffer

RECORD_OVERHEAD_BYTES: Final = estimate_size_bytes(None, None)


class Stamp(NamedTuple):
    """The numbers by which a broker recognises a batch (`sequences.py`)."""

    producer_id: int
    epoch: int
    base_sequence: int


class _BatchFields:
    """The attributes of a batch."""

    __slots__ = (
        "appended",
        "attempts",
        "callbacks",
        "created_ms",
        "encoded",
        "is_expired",
        "is_settled",
        "last_error",
        "limit_bytes",
        "records",
        "reserved_bytes",
        "result",
        "size_bytes",
        "stamp",
        "start",
        "tp",
    )


if core is not None and not TYPE_CHECKING:
    _BatchFields = core.BatchFields


def _open_batch() -> list[RawRecord] | Any:
    """Returns the records of a new batch: a list, or an OpenBatch of the compiled core."""
    return [] if core is None else core.OpenBatch()


class Batch(_BatchFields):
    """One record batch. The module's docstring has its life cycle. All times are monotonic milliseconds."""

    __slots__ = ()

    def __init__(self, tp: TopicPartition, created_ms: int, reserved_bytes: int, calls: UserCalls) -> None:
        self.tp = tp
        self.created_ms = created_ms
        self.reserved_bytes = reserved_bytes
        """The bytes of buffer.memory that the batch has reserved."""
        self.limit_bytes = reserved_bytes
        """The size that an open batch does not exceed."""
        self.size_bytes = HEADER_SIZE_BYTES
        self.appended: list[RawRecord] | Any = _open_batch()
        """The records that were appended, and those of appends that came too late because a signal handler had
        interrupted them."""
        self.records: Sequence[RawRecord] = self.appended
        """The records of the batch."""
        self.callbacks: list[tuple[int, DeliveryCallback]] = []
        """The callbacks of records, each with the record's index in the result."""
        self.result = BatchResult(tp, self.records, calls)
        self.start = 0
        """The index of the batch's first record in the result."""
        self.attempts = 0
        self.last_error: Exception | None = None
        """The error of the last attempt, or None."""
        self.stamp: Stamp | None = None
        """The producer id, epoch and sequence, from the first attempt on; None if the producer is not idempotent."""
        self.encoded: Buffer | None = None
        self.is_expired = False
        """True if the batch expired while it was in flight."""
        self.is_settled = False
        """True after the outcome of the batch's records is known."""

    def close(self) -> None:
        """Ends the appending of records."""
        if self.records is self.appended:
            appended: list[RawRecord] | Any = self.appended
            if isinstance(appended, list):
                self.records = tuple(appended)
            else:
                appended.close()

    def index_of(self, record: RawRecord) -> int:
        """Returns the record's index in the batch, or -1 if the batch does not have this very object."""
        for index in range(len(self.records) - 1, -1, -1):
            if self.records[index] is record:
                return index
        return -1

    def halves(self) -> list[Batch]:
        """Returns two batches with half of the records each, in order. Both settle parts of this batch's result."""
        middle = len(self.records) // 2
        assert middle, "a single record cannot be split"
        first, second = self._part(0, middle), self._part(middle, len(self.records))
        self.result.split(2)
        return [first, second]

    def _part(self, begin: int, end: int) -> Batch:
        records = self.records[begin:end]
        part = Batch(self.tp, self.created_ms, 0, self.result.calls)
        part.records = records
        part.result = self.result
        part.start = self.start + begin
        stop = self.start + end
        part.callbacks = [callback for callback in self.callbacks if part.start <= callback[0] < stop]
        part.size_bytes += sum(estimate_size_bytes(key, value, headers) for _, key, value, headers in records)
        part.reserved_bytes = part.size_bytes
        part.attempts = self.attempts
        if self.stamp is not None:
            sequence = increment_sequence(self.stamp.base_sequence, begin)
            part.stamp = self.stamp._replace(base_sequence=sequence)
        return part

    def outcomes(self, base_offset: int, log_append_time_ms: int, error: Exception | None) -> list[RecordsOutcome]:
        """Returns this batch's part of the result. It is one outcome, unless only some of the records are invalid."""
        if not isinstance(error, BrokerError) or not error.record_errors:
            return [RecordsOutcome(self.start, base_offset, log_append_time_ms, error)]
        return [RecordsOutcome(self.start + start, -1, -1, own) for start, own in self._errors_by_run(error)]

    def _errors_by_run(self, error: BrokerError) -> Iterator[tuple[int, Exception]]:
        """Yields (index in the batch, error) of each run of records with the same error. The broker returns one code
        for all records. As in Kafka's clients, a single invalid record gets this code, several get INVALID_RECORD."""
        code = error.code if len(error.record_errors) == 1 else ErrorCode.INVALID_RECORD
        own: dict[str, Exception] = {}
        others = OtherRecordsInvalidError(
            f"nothing is wrong with this record of {self.tp}: others of its batch were refused ({error.message})"
        )
        others.__cause__ = error
        end = 0
        for index, message in error.record_errors:
            if end < index < len(self.records):
                yield end, others
            yield index, own.setdefault(message, code.exception(message or error.message))
            end = index + 1
        if end < len(self.records):
            yield end, others
