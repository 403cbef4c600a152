"""Reads one log: finds records by offset and by time, and aborted transactions.

The reader reads as little as possible from the files. `locate` names a part of a file, and the caller reads or sends
that part. Every call may raise LogDirFailure.
"""

from __future__ import annotations

from typing import NamedTuple

from klamm.errors import ErrorCode
from klamm_broker.log.files.leader_epochs import LeaderEpochCache
from klamm_broker.log.partition.log_segments import LocatedRecords, LogSegments
from klamm_broker.log.segment.check_budget import CheckBudget
from klamm_broker.log.segment.segment import Segment
from klamm_broker.log.segment.segment_files import FileSlice
from klamm_broker.log.segment.time_index import NO_TIMESTAMP_MS
from klamm_broker.log.segment.time_search import LargestSearch, OpenSearch, TimestampHit
from klamm_broker.log.segment.transaction_index import AbortedTransaction
from klamm_broker.log.segment.unread_search import PART_BYTES, UnreadFound, UnreadSearch

LOCATED_MAX = 4
"""The number of places of records that a log remembers. Readers of one partition mostly read the same records."""


class FetchData(NamedTuple):
    """The result of a read."""

    records: bytes
    """Whole batches, as on disk. The first batch contains the requested offset. Empty at the log end."""
    log_start_offset: int
    log_end_offset: int


class LogReader:
    """Finds records and aborted transactions in one log."""

    def __init__(self, segments: LogSegments, epochs: LeaderEpochCache) -> None:
        self._segments = segments
        self._epochs = epochs

    def read(self, offset: int, max_bytes: int, *, max_offset: int | None = None, min_one: bool = True) -> FetchData:
        """Returns batches from the one with `offset` on, at most `max_bytes`, below `max_offset` (default: the log
        end).

        With `min_one`, the first batch is returned even if it is larger than `max_bytes` (KIP-74). Raises the exception
        of OFFSET_OUT_OF_RANGE, or CorruptBatchError if the log is damaged."""
        segments = self._segments
        located = self.locate(offset, max_bytes, max_offset=max_offset, min_one=min_one)
        if located is None or not located.part.size_bytes:
            return FetchData(b"", segments.start_offset, segments.end_offset)
        records = segments.reading(lambda: located.segment.files.read(located.part))
        return FetchData(records, segments.start_offset, segments.end_offset)

    def locate(
        self, offset: int, max_bytes: int, *, max_offset: int | None = None, min_one: bool = True
    ) -> LocatedRecords | None:
        """Returns the place of the records that `read` would return, or None if there are no records to read yet."""
        segments = self._segments
        segments.check_usable()
        self._check_in_range(offset)
        end_offset = segments.end_offset if max_offset is None else min(max_offset, segments.end_offset)
        if offset >= end_offset:
            return None
        # Appends come after `end_offset`, so they do not change what was found.
        key = (offset, max_bytes, end_offset, min_one)
        found = segments.located.get(key)
        if found is None:
            found = self._search(offset, max_bytes, end_offset, min_one)
            if found is not None:
                if len(segments.located) >= LOCATED_MAX:
                    del segments.located[next(iter(segments.located))]
                segments.located[key] = found
        elif found.segment is not segments.active:
            segments.look_in(found.segment, _nothing)  # the caller may read from the open segment
        return found

    def _search(self, offset: int, max_bytes: int, end_offset: int, min_one: bool) -> LocatedRecords | None:
        segments = self._segments
        items = segments.items
        for slot in range(segments.slot_of(offset), len(items)):
            segment = items[slot]
            part = segments.look_in(segment, lambda s: self._locate_in(s, offset, max_bytes, end_offset, min_one))
            if part is not None:
                return LocatedRecords(segment, part)
        return None

    def _check_in_range(self, offset: int) -> None:
        start_offset, end_offset = self._segments.start_offset, self._segments.end_offset
        if not start_offset <= offset <= end_offset:
            raise ErrorCode.OFFSET_OUT_OF_RANGE.exception(
                f"{self._segments.topic_partition}: offset {offset} is not in the log; expected {start_offset} to"
                f" {end_offset}"
            )

    def _locate_in(
        self, segment: Segment, offset: int, max_bytes: int, end_offset: int, min_one: bool
    ) -> FileSlice | None:
        end_position = segment.files.size_bytes
        if end_offset < self._segments.end_offset_of(segment):
            limit = segment.reader.find_batch(end_offset)
            end_position = end_position if limit is None else limit[0]
        return segment.reader.locate(offset, max_bytes, end_position, min_one=min_one)

    # Aborted transactions

    def aborted_in(self, located: LocatedRecords, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Returns the aborted transactions that have records in a read from `start_offset`, bounded by `end_offset`.
        The list may have some that begin after the read."""
        segments = self._segments
        if not any(segment.aborted.count for segment in segments.items[segments.slot_of(start_offset) :]):
            return []
        segment, part = located
        bound = segment.reader.offset_from(part.position + part.size_bytes)
        end_offset = min(end_offset, segments.end_offset_of(segment) if bound is None else bound)
        return self.aborted_between(start_offset, end_offset)

    def aborted_between(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Returns the aborted transactions that wrote in `[start_offset, end_offset)`, or whose marker is there.

        The entry of a transaction is in the segment with its marker, which is this one or a later one."""
        segments = self._segments
        found: list[AbortedTransaction] = []
        for segment in segments.items[segments.slot_of(start_offset) :]:
            if not segment.aborted.count:
                continue
            entries, is_all = segments.look_in(segment, lambda s: s.aborted.between(start_offset, end_offset))
            found += entries
            if is_all:
                break
        return found

    def open_unread_search(self, start_offset: int, end_offset: int) -> OpenSearch[UnreadFound]:
        """Returns the search for unread records in the segment with `start_offset`, for a thread. `end_offset` is the
        offset after the last record that counts. Raises as `locate`."""
        segments = self._segments
        segments.check_usable()
        self._check_in_range(start_offset)
        segment = segments.items[segments.slot_of(start_offset)]
        part = segments.look_in(segment, lambda s: s.reader.part_from(start_offset, PART_BYTES))
        part_end = segments.end_offset_of(segment) if part.end_offset is None else part.end_offset
        aborted = self.aborted_between(start_offset, min(end_offset, part_end))
        search = UnreadSearch(segments.disk, part.position, part.end, start_offset, end_offset, aborted)
        return OpenSearch(search, segments.reading(segment.files.duplicate_fd), segments.end_offset_of(segment))

    # Offsets by time

    def find_timestamp(self, timestamp_ms: int, budget: CheckBudget | None = None) -> TimestampHit | None:
        """Returns the first record with this timestamp or a later one, or None. It searches from the log start.

        Raises CorruptBatchError, and OverBudgetError if the search needs more than `budget`."""
        segments = self._segments
        segments.check_usable()
        start_offset = segments.start_offset
        for segment in segments.items[segments.slot_of(start_offset) :]:
            if segment.indexes.largest.timestamp_ms < timestamp_ms:
                continue
            hit = segments.look_in(
                segment, lambda s: s.reader.time_search(timestamp_ms, start_offset).run(s.files.fd, budget)
            )
            if hit is not None:
                return hit
        return None

    def open_time_search(self, timestamp_ms: int, start_offset: int) -> OpenSearch[TimestampHit | None] | None:
        """Returns the search of `find_timestamp` in the first segment from `start_offset` on that may have the record,
        for a thread. Returns None if no segment may have it."""
        segments = self._segments
        segments.check_usable()
        start_offset = max(start_offset, segments.start_offset)
        for segment in segments.items[segments.slot_of(start_offset) :]:
            end_offset = segments.end_offset_of(segment)
            if end_offset > start_offset and segment.indexes.largest.timestamp_ms >= timestamp_ms:
                search = segments.look_in(segment, lambda s: s.reader.time_search(timestamp_ms, start_offset))
                return OpenSearch(search, segments.reading(segment.files.duplicate_fd), end_offset)
        return None

    def find_max_timestamp(self, budget: CheckBudget | None = None) -> TimestampHit | None:
        """Returns the first record with the largest timestamp of the log, or None if no record has a timestamp
        (KIP-734). Raises as `find_timestamp`."""
        segments = self._segments
        segments.check_usable()
        in_first_ms = None
        if (search := self._largest_search()) is not None:
            in_first_ms = segments.look_in(self._first(), lambda s: search.run(s.files.fd, budget))
        timestamp_ms = self.max_timestamp_ms(in_first_ms)
        return None if timestamp_ms == NO_TIMESTAMP_MS else self.find_timestamp(timestamp_ms, budget)

    def open_largest_search(self) -> OpenSearch[int] | None:
        """Returns the search of `find_max_timestamp` for the largest timestamp of the first segment, for a thread.
        Returns None if its indexes know that timestamp."""
        segments = self._segments
        segments.check_usable()
        search = self._largest_search()
        if search is None:
            return None
        first = self._first()
        return OpenSearch(search, segments.reading(first.files.duplicate_fd), segments.end_offset_of(first))

    def max_timestamp_ms(self, in_first_ms: int | None) -> int:
        """Returns the largest timestamp of the log, or -1 if no record has one. `in_first_ms` is that of the first
        segment, or None if its indexes know it."""
        segments = self._segments
        first, *later = segments.items[segments.slot_of(segments.start_offset) :]
        if in_first_ms is None:
            in_first_ms = first.indexes.largest.timestamp_ms
        return max([in_first_ms, *(segment.indexes.largest.timestamp_ms for segment in later)])

    def _first(self) -> Segment:
        """Returns the segment with the log start offset."""
        return self._segments.items[self._segments.slot_of(self._segments.start_offset)]

    def _largest_search(self) -> LargestSearch | None:
        segments = self._segments
        start_offset = segments.start_offset
        return segments.look_in(self._first(), lambda s: s.reader.largest_search(start_offset))

    def failed(self, error: OSError) -> Exception:
        """Returns the exception for a search on a thread that could not read (`LogSegments.failed`)."""
        return self._segments.failed(error, "read of")

    def earliest(self) -> TimestampHit:
        """Returns the log start offset with its epoch (-1 if unknown) and without a timestamp."""
        start_offset = self._segments.start_offset
        return TimestampHit(NO_TIMESTAMP_MS, start_offset, self._epochs.epoch_for_offset(start_offset))


def _nothing(_: Segment) -> None:
    """Looks for nothing in an open segment."""
