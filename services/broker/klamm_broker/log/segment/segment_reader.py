"""Finds batches and records in one open segment, by offset and by time.

Raises CorruptIndexError if an index entry does not match the batch at its position, and CorruptBatchError if the log is
damaged there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from klamm.records.decoder import decode_batch
from klamm.records.errors import CorruptBatchError
from klamm.records.header import BatchHeader
from klamm_broker.log.segment.batch_scan import scan_headers
from klamm_broker.log.segment.batch_starts import BatchStarts
from klamm_broker.log.segment.offset_index import CorruptIndexError, IndexEntry
from klamm_broker.log.segment.segment_files import FileSlice, SegmentFiles
from klamm_broker.log.segment.segment_indexes import SegmentIndexes
from klamm_broker.log.segment.time_index import NO_TIMESTAMP_MS, latest_timestamp_ms


class TimestampHit(NamedTuple):
    """A record found by its timestamp."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


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

    # By time

    def find_timestamp(self, timestamp_ms: int, start_offset: int) -> TimestampHit | None:
        """Returns the first record at or after `start_offset` whose timestamp is `timestamp_ms` or later, or None."""
        entry = self._indexes.times.lookup(timestamp_ms)
        start = self._indexes.offsets.lookup(max(entry.offset, start_offset)).position
        for position, header in self._files.headers(start):
            if header.max_timestamp_ms < timestamp_ms or header.last_offset < start_offset:
                continue
            batch = self._files.read(FileSlice(position, header.size_bytes))
            for record in decode_batch(batch):
                if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                    return TimestampHit(record.timestamp_ms, record.offset, header.partition_leader_epoch)
        return None

    def largest_timestamp_from(self, start_offset: int) -> int:
        """Returns the largest timestamp of the records at or after `start_offset`, or -1."""
        if start_offset <= self._files.base_offset:
            return self._indexes.largest.timestamp_ms
        found = self.find_batch(start_offset)
        if found is None:
            return NO_TIMESTAMP_MS
        position, header = found
        first = decode_batch(self._files.read(FileSlice(position, header.size_bytes)))
        in_first = [record.timestamp_ms for record in first if record.offset >= start_offset]
        after = [latest_timestamp_ms(header) for _, header in self._files.headers(position + header.size_bytes)]
        return max([NO_TIMESTAMP_MS, *in_first, *after])
