"""Searches a part of a `.log` file for the first record from a time on.

The segment's indexes say where the search begins. From there, it needs only a descriptor of the file, so that a thread
can do it: it reads headers, and then the records of the first batches whose largest timestamp is large enough.
"""

from __future__ import annotations

import contextlib
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from klamm.records.contents import MAX_DECOMPRESSED_BYTES
from klamm.records.decoder import RecordSection, read_section
from klamm.records.errors import DecompressedTooLargeError
from klamm.records.header import COMPRESSION_MASK, TIMESTAMP_TYPE_MASK, BatchHeader
from klamm.records.keys import parse_keys
from klamm.records.record_times import first_record_from
from klamm_broker.log.files.disk import Disk
from klamm_broker.log.segment.batch_scan import scan_headers
from klamm_broker.log.segment.check_budget import (
    DECOMPRESSED_BYTE_NS,
    KEY_NS,
    RECORD_NS,
    CheckBudget,
    OverBudgetError,
)
from klamm_broker.log.segment.time_index import NO_TIMESTAMP_MS, latest_timestamp_ms

ResultT = TypeVar("ResultT")
ResultT_co = TypeVar("ResultT_co", covariant=True)


class Search(Protocol[ResultT_co]):
    """What `TimeSearch` and `LargestSearch` have in common."""

    @property
    def disk(self) -> Disk: ...

    def run(self, fd: int, budget: CheckBudget | None = None) -> ResultT_co: ...


_BEFORE_ALL_MS: Final = -(2**63)


class TimestampHit(NamedTuple):
    """A record found by its timestamp."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class TimeSearch(NamedTuple):
    """A search in one segment."""

    disk: Disk
    position: int
    """The position of the batch at which the search begins."""
    end: int
    """The position after the last batch."""
    timestamp_ms: int
    start_offset: int
    """The offset of the first record that may be found."""

    def run(self, fd: int, budget: CheckBudget | None = None) -> TimestampHit | None:
        """Returns the first record at or after `start_offset` whose timestamp is `timestamp_ms` or later, or None.

        `fd` is a descriptor of the segment's log. Raises OSError, CorruptBatchError, and OverBudgetError if the search
        needs more than `budget`."""
        for position, header in scan_headers(self.disk, fd, self.position, self.end):
            if budget is not None:
                budget.take(RECORD_NS)
            if header.max_timestamp_ms < self.timestamp_ms or header.last_offset < self.start_offset:
                continue
            if (hit := self._first_in(header, fd, position, budget)) is not None:
                return hit
        return None

    def _first_in(self, header: BatchHeader, fd: int, position: int, budget: CheckBudget | None) -> TimestampHit | None:
        if budget is not None:
            budget.take(RECORD_NS * header.record_count)
        batch = self.disk.read_all(fd, header.size_bytes, position)
        section = _section(batch, budget)
        start = max(self.start_offset, header.base_offset)
        if header.attributes & TIMESTAMP_TYPE_MASK:
            # All records have the broker's timestamp.
            first = first_record_from(header, section, _BEFORE_ALL_MS, start)
            found = None if first is None else (header.max_timestamp_ms, first[1])
        else:
            found = first_record_from(header, section, self.timestamp_ms, start)
        return None if found is None else TimestampHit(*found, header.partition_leader_epoch)


class LargestSearch(NamedTuple):
    """A search for the largest timestamp in one segment, from an offset on."""

    disk: Disk
    position: int
    """The position of the batch with `start_offset`."""
    end: int
    """The position after the last batch."""
    start_offset: int

    def run(self, fd: int, budget: CheckBudget | None = None) -> int:
        """Returns the largest timestamp of the records at or after `start_offset`, or -1. Raises as
        `TimeSearch.run`."""
        largest = NO_TIMESTAMP_MS
        for position, header in scan_headers(self.disk, fd, self.position, self.end):
            if budget is not None:
                budget.take(RECORD_NS)
            if header.base_offset >= self.start_offset:
                largest = max(largest, latest_timestamp_ms(header))
            elif header.attributes & TIMESTAMP_TYPE_MASK:
                # All records have the broker's timestamp.
                largest = max(largest, latest_timestamp_ms(header))
            elif header.record_count:
                largest = max(largest, self._largest_in(header, fd, position, budget))
        return largest

    def _largest_in(self, header: BatchHeader, fd: int, position: int, budget: CheckBudget | None) -> int:
        if budget is not None:
            budget.take(KEY_NS * header.record_count)
        section = _section(self.disk.read_all(fd, header.size_bytes, position), budget)
        records = parse_keys(header, section)
        offset_delta_min = self.start_offset - header.base_offset
        deltas = zip(records.offset_deltas, records.timestamp_deltas, strict=True)
        timestamps = [header.base_timestamp_ms + delta for offset, delta in deltas if offset >= offset_delta_min]
        return max(timestamps, default=NO_TIMESTAMP_MS)


class OpenSearch(Generic[ResultT]):
    """A search with a descriptor of its own, for a thread."""

    def __init__(self, search: Search[ResultT], fd: int, end_offset: int) -> None:
        self.end_offset = end_offset
        """The offset after the last record of the segment."""
        self._search = search
        self._fds = [fd]

    def run(self) -> ResultT:
        """Runs the search, and closes the descriptor. Raises as `TimeSearch.run`."""
        fd = self._fds.pop()
        try:
            return self._search.run(fd)
        finally:
            self._search.disk.close(fd)

    def close(self) -> None:
        """Closes the descriptor of a search that no thread has begun."""
        with contextlib.suppress(IndexError):
            self._search.disk.close(self._fds.pop())


def _section(batch: bytes, budget: CheckBudget | None) -> bytes:
    """Returns the decompressed records of a batch, whose checksum is checked. Raises CorruptBatchError or
    OverBudgetError."""
    if budget is None:
        return _bytes(read_section(batch, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES))
    allowed_bytes = budget.left_ns // DECOMPRESSED_BYTE_NS
    try:
        section = read_section(batch, max_decompressed_bytes=max(allowed_bytes, len(batch)))
    except DecompressedTooLargeError:
        raise OverBudgetError from None
    if section.header.attributes & COMPRESSION_MASK:
        budget.take(DECOMPRESSED_BYTE_NS * section.end)
    return _bytes(section)


def _bytes(section: RecordSection) -> bytes:
    return bytes(section.data[section.start : section.end])
