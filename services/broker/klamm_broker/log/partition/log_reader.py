"""Reads one log: finds records by offset and by time, and aborted transactions.

The reader reads as little as possible from the files. `locate` names a part of a file, and the caller reads or sends
that part. Every call may raise LogDirFailure.
"""

from __future__ import annotations

from typing import NamedTuple

from klamm.errors import ErrorCode
from klamm_broker.log.files.leader_epochs import LeaderEpochCache
from klamm_broker.log.partition.log_segments import LogSegments
from klamm_broker.log.segment.segment import Segment
from klamm_broker.log.segment.segment_files import FileSlice
from klamm_broker.log.segment.segment_reader import TimestampHit
from klamm_broker.log.segment.time_index import NO_TIMESTAMP_MS
from klamm_broker.log.segment.transaction_index import AbortedTransaction


class FetchData(NamedTuple):
    """The result of a read."""

    records: bytes
    """Whole batches, as on disk. The first batch contains the requested offset. Empty at the log end."""
    log_start_offset: int
    log_end_offset: int


class LocatedRecords(NamedTuple):
    """The location of the records of a read. It is valid until the next call that changes the log."""

    segment: Segment
    part: FileSlice


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

    # Offsets by time

    def find_timestamp(self, timestamp_ms: int) -> TimestampHit | None:
        """Returns the first record with this timestamp or a later one, or None. It searches from the log start."""
        segments = self._segments
        segments.check_usable()
        start_offset = segments.start_offset
        for segment in segments.items[segments.slot_of(start_offset) :]:
            if segment.indexes.largest.timestamp_ms < timestamp_ms:
                continue
            hit = segments.look_in(segment, lambda s: s.reader.find_timestamp(timestamp_ms, start_offset))
            if hit is not None:
                return hit
        return None

    def find_max_timestamp(self) -> TimestampHit | None:
        """Returns the first record with the largest timestamp of the log, or None if no record has a timestamp
        (KIP-734)."""
        segments = self._segments
        segments.check_usable()
        start_offset = segments.start_offset
        first, *later = segments.items[segments.slot_of(start_offset) :]
        # In the first segment, the record with the largest timestamp may be below the log start.
        in_first = segments.look_in(first, lambda s: s.reader.largest_timestamp_from(start_offset))
        timestamp_ms = max([in_first, *(segment.indexes.largest.timestamp_ms for segment in later)])
        return None if timestamp_ms == NO_TIMESTAMP_MS else self.find_timestamp(timestamp_ms)

    def earliest(self) -> TimestampHit:
        """Returns the log start offset with its epoch (-1 if unknown) and without a timestamp."""
        start_offset = self._segments.start_offset
        return TimestampHit(NO_TIMESTAMP_MS, start_offset, self._epochs.epoch_for_offset(start_offset))
