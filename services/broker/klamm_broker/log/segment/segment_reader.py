"""Finds batches and records in one open segment, by offset and by time.

Raises CorruptIndexError if an index entry does not match the batch at its position, and CorruptBatchError if the log is
damaged there.
"""

from __future__ import annotations

from collections.abc import Iterator

from klamm.records.errors import CorruptBatchError
from klamm.records.header import BatchHeader
from klamm_broker.log.segment.batch_scan import scan_headers
from klamm_broker.log.segment.batch_starts import BatchStarts
from klamm_broker.log.segment.offset_index import CorruptIndexError, IndexEntry
from klamm_broker.log.segment.segment_files import FileSlice, SegmentFiles
from klamm_broker.log.segment.segment_indexes import SegmentIndexes
from klamm_broker.log.segment.time_search import LargestSearch, TimeSearch
from klamm_broker.log.segment.unread_search import SegmentPart


class SegmentReader:
    """Finds batches and records in one open segment."""

    __slots__ = ("_files", "_indexes", "_starts")

    def __init__(self, files: SegmentFiles, indexes: SegmentIndexes, starts: BatchStarts) -> None:
        self._files = files
        self._indexes = indexes
        self._starts = starts

    # By offset

    def find_batch(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Returns the position and header of the first batch that ends at or after `offset`, or None."""
        files, entry = self._files, self._indexes.offsets.lookup(offset)
        headers = scan_headers(files.disk, files.fd, entry.position, files.size_bytes)
        if entry.position:
            indexed = self._indexed_batch(entry, headers)
            if entry.offset == offset:
                return entry.position, indexed
        for position, header in headers:
            if header.last_offset >= offset:
                return position, header
        return None

    def _indexed_batch(self, entry: IndexEntry, headers: Iterator[tuple[int, BatchHeader]]) -> BatchHeader:
        try:
            _, header = next(headers)
        except (CorruptBatchError, StopIteration) as error:
            raise CorruptIndexError(f"entry {entry} does not point to a batch: {error}") from None
        if header.last_offset != entry.offset:
            raise CorruptIndexError(f"entry {entry} points to a batch with the last offset {header.last_offset}")
        return header

    def locate(self, offset: int, max_bytes: int, end_position: int, *, min_one: bool) -> FileSlice | None:
        """Returns the slice of whole batches from the one with `offset` on, of at most `max_bytes`, up to
        `end_position`.

        With `min_one`, the first batch is included even if it is larger (KIP-74). Returns None if the segment ends
        before `offset`, and an empty slice if no batch fits."""
        known = self._starts.find(offset)
        if known is not None and known < end_position:
            limit = min(known + max_bytes, end_position)
            if limit == end_position:
                return FileSlice(known, end_position - known)
            if (indexed := self._indexes.offsets.floor_position(limit)) > known:
                return FileSlice(known, self._last_boundary(indexed, limit) - known)
        found = self.find_batch(offset)
        if found is None:
            return None
        start, first = found
        limit = min(start + max_bytes, end_position)
        first_end = start + first.size_bytes
        if first_end > limit:
            return FileSlice(start, first.size_bytes if min_one and first_end <= end_position else 0)
        if limit == end_position:
            return FileSlice(start, end_position - start)
        return FileSlice(start, self._last_boundary(first_end, limit) - start)

    def _last_boundary(self, position: int, limit: int) -> int:
        """Returns the last batch end <= `limit`. `position` must be a batch boundary."""
        files = self._files
        position = max(position, self._indexes.offsets.floor_position(limit))
        for start, header in scan_headers(files.disk, files.fd, position, files.size_bytes):
            if start + header.size_bytes > limit:
                self._starts.note(header.base_offset, start)
                break
            position = start + header.size_bytes
        return position

    def offset_from(self, position: int) -> int | None:
        """Returns an offset above all batches before `position`, which is a batch boundary, or None if none is
        known."""
        return self._indexes.offsets.offset_from(position)

    def part_from(self, offset: int, size_bytes: int) -> SegmentPart:
        """Returns a part of at most `size_bytes` from the batch with `offset`, or one that is indexed before it."""
        position = self._indexes.offsets.lookup(offset).position
        if position + size_bytes < self._files.size_bytes:
            end = self._indexes.offsets.floor_position(position + size_bytes)
            if end > position:
                return SegmentPart(position, end, self._indexes.offsets.offset_from(end))
        return SegmentPart(position, self._files.size_bytes, None)

    # By time

    def time_search(self, timestamp_ms: int, start_offset: int) -> TimeSearch:
        """Returns the search for the first record at or after `start_offset` whose timestamp is `timestamp_ms` or
        later."""
        entry = self._indexes.times.lookup(timestamp_ms)
        position = self._indexes.offsets.lookup(max(entry.offset, start_offset)).position
        return TimeSearch(self._files.disk, position, self._files.size_bytes, timestamp_ms, start_offset)

    def largest_search(self, start_offset: int) -> LargestSearch | None:
        """Returns the search for the largest timestamp of the records at or after `start_offset`, or None if it is the
        largest timestamp of the segment."""
        if start_offset <= self._files.base_offset:
            return None
        found = self.find_batch(start_offset)
        position = self._files.size_bytes if found is None else found[0]
        if found is not None and self._indexes.largest.offset > found[1].last_offset:
            return None
        return LargestSearch(self._files.disk, position, self._files.size_bytes, start_offset)
