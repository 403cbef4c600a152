"""Searches a part of a `.log` file for the first record from a time on.

The segment's indexes say where the search begins. From there, it needs only a descriptor of the file, so that a thread
can do it: it reads headers, and then the records of the first batches whose largest timestamp is large enough. A batch
that is large when it is decompressed is read in pieces.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from klamm.records.compression import open_decompressed
from klamm.records.decoder import read_section
from klamm.records.errors import DecompressedTooLargeError
from klamm.records.header import COMPRESSION_MASK, HEADER_SIZE_BYTES, TIMESTAMP_TYPE_MASK, BatchHeader, read_header
from klamm.records.keys import parse_keys
from klamm.records.pieces import part_header, record_pieces
from klamm.records.record_times import first_record_from
from klamm_broker.log.segment.batch_scan import scan_headers
from klamm_broker.log.segment.check_budget import (
    DECOMPRESSED_BYTE_NS,
    KEY_NS,
    RECORD_NS,
    WHOLE_BYTES_MAX,
    WHOLE_NS,
    CheckBudget,
    OverBudgetError,
)
from klamm_broker.log.segment.time_index import NO_TIMESTAMP_MS, latest_timestamp_ms
from klamm_server.runtime.disk import Disk

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
        start = max(self.start_offset, header.base_offset)
        # With a broker's timestamp, all records have the same.
        stamped = bool(header.attributes & TIMESTAMP_TYPE_MASK)
        with _parts(batch, budget) as parts:
            for part, records in parts:
                found = first_record_from(part, records, _BEFORE_ALL_MS if stamped else self.timestamp_ms, start)
                if found is not None:
                    timestamp_ms, offset = found
                    return TimestampHit(
                        header.max_timestamp_ms if stamped else timestamp_ms, offset, header.partition_leader_epoch
                    )
        return None


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
        offset_delta_min = self.start_offset - header.base_offset
        largest = NO_TIMESTAMP_MS
        with _parts(self.disk.read_all(fd, header.size_bytes, position), budget) as parts:
            for part, data in parts:
                records = parse_keys(part, data)
                deltas = zip(records.offset_deltas, records.timestamp_deltas, strict=True)
                times = [header.base_timestamp_ms + delta for offset, delta in deltas if offset >= offset_delta_min]
                largest = max([largest, *times])
        return largest


class OpenSearch(Generic[ResultT]):
    """A search with a descriptor of its own, for a thread."""

    def __init__(self, search: Search[ResultT], fd: int, end_offset: int) -> None:
        self.end_offset = end_offset
        """The offset after the last record of the segment."""
        self._search = search
        self._fds = [fd]

    def run(self, budget: CheckBudget) -> ResultT:
        """Runs the search, and closes the descriptor unless the search is over the budget. Raises as
        `TimeSearch.run`."""
        fd = self._fds.pop()
        try:
            found = self._search.run(fd, budget)
        except OverBudgetError:
            self._fds.append(fd)
            raise
        except BaseException:
            self._search.disk.close(fd)
            raise
        self._search.disk.close(fd)
        return found

    def close(self) -> None:
        """Closes the descriptor of a search that no thread runs."""
        with contextlib.suppress(IndexError):
            self._search.disk.close(self._fds.pop())


@contextlib.contextmanager
def _parts(batch: bytes, budget: CheckBudget | None) -> Iterator[Iterable[tuple[BatchHeader, bytes]]]:
    """Opens the decompressed records of a batch, whose checksum is checked: in pieces if they are many. Each part has
    the header of a batch with only its records. Raises CorruptBatchError or OverBudgetError."""
    allowed_bytes = WHOLE_BYTES_MAX
    if budget is not None and budget.left_ns < WHOLE_NS:
        allowed_bytes = max(budget.left_ns // DECOMPRESSED_BYTE_NS, len(batch))
    try:
        section = read_section(batch, max_decompressed_bytes=allowed_bytes)
    except DecompressedTooLargeError:
        if budget is not None and budget.is_bounded:
            raise OverBudgetError from None
    else:
        if budget is not None and section.header.attributes & COMPRESSION_MASK:
            budget.take(DECOMPRESSED_BYTE_NS * section.end)
        yield [(section.header, bytes(section.data[section.start : section.end]))]
        return
    header = read_header(batch)
    with open_decompressed(header.compression, batch[HEADER_SIZE_BYTES:], max_bytes=sys.maxsize) as data:
        paced = data if budget is None else budget.pacing(data)
        yield ((part_header(header, piece), piece.data) for piece in record_pieces(header, paced, with_keys=False))
