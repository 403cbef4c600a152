"""The offset index and the time index of one segment, in memory and in their files, and its largest timestamp.

Entries in memory describe batches of the log. The files may lack entries until `write`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from klamm.records.errors import CorruptBatchError
from klamm.records.header import BatchHeader
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.segment import offset_index, time_index
from klamm_broker.log.segment.batch_scan import scan_headers
from klamm_broker.log.segment.index_file import trim_entries, write_entries
from klamm_broker.log.segment.offset_index import CorruptIndexError, OffsetIndex
from klamm_broker.log.segment.segment_files import INDEX_SUFFIX, TIME_INDEX_SUFFIX, SegmentFiles
from klamm_broker.log.segment.time_index import NO_TIMESTAMP_MS, TimeIndex, TimestampOffset, latest_timestamp_ms

logger = logging.getLogger(__name__)


class SegmentIndexes:
    """The offset index and the time index of one segment."""

    __slots__ = ("_bytes_since_entry", "_files", "_interval_bytes", "_max_bytes", "largest", "offsets", "times")

    def __init__(self, files: SegmentFiles, config: LogConfig) -> None:
        self._files = files
        self._max_bytes = config.segment_index_bytes
        self._interval_bytes = config.index_interval_bytes
        self.offsets = OffsetIndex(files.base_offset, self._max_bytes)
        self.times = TimeIndex(files.base_offset, self._max_bytes)
        self._bytes_since_entry = 0
        """The size of all batches since the last entry, its own batch included."""
        self.largest = TimestampOffset(NO_TIMESTAMP_MS, files.base_offset)
        """The largest timestamp and the last offset of the first batch that has it."""

    def clear(self) -> None:
        """Drops all entries and the largest timestamp."""
        self.drop()
        self._bytes_since_entry = 0
        self.largest = TimestampOffset(NO_TIMESTAMP_MS, self._files.base_offset)

    def drop(self) -> None:
        """Frees the entries in memory. Written entries are still in the files."""
        self.offsets = OffsetIndex(self._files.base_offset, self._max_bytes)
        self.times = TimeIndex(self._files.base_offset, self._max_bytes)

    # The files

    def attach(self, end_offset: int) -> bool:
        """Reads the largest timestamp from the last entries of the files. Returns False if they do not match the log.

        `end_offset` is the base offset of the next segment."""
        files = self._files
        if not files.size_bytes:
            return files.disk.exists(files.path(INDEX_SUFFIX)) and files.disk.exists(files.path(TIME_INDEX_SUFFIX))
        try:
            last = self._tail(INDEX_SUFFIX, offset_index.ENTRY_SIZE_BYTES)
            last_time = self._tail(TIME_INDEX_SUFFIX, time_index.ENTRY_SIZE_BYTES)
            offsets = OffsetIndex.decode(files.base_offset, self._max_bytes, last)
            times = TimeIndex.decode(files.base_offset, self._max_bytes, last_time)
            _check_last_time(times, end_offset)
            self._check_last_entry_by_path(offsets)
        except (CorruptIndexError, CorruptBatchError, FileNotFoundError) as error:
            logger.warning("could not use an index, segment=%s reason=%s", files.path(), error)
            return False
        self.largest = times.last
        # A log with records got a time index entry when it was sealed, unless no record has a timestamp.
        return bool(len(times)) and (bool(len(offsets)) or not last)

    def _tail(self, suffix: str, entry_size_bytes: int) -> bytes:
        disk, path = self._files.disk, self._files.path(suffix)
        size = disk.size(path)
        if size % entry_size_bytes:
            raise CorruptIndexError(f"{path} has {size} bytes; expected a multiple of {entry_size_bytes}")
        fd = disk.open(path, os.O_RDONLY)
        try:
            return disk.pread(fd, entry_size_bytes, max(0, size - entry_size_bytes))
        finally:
            disk.close(fd)

    def _check_last_entry_by_path(self, offsets: OffsetIndex) -> None:
        fd = self._files.duplicate_fd()
        try:
            self._check_last_entry(offsets, fd)
        finally:
            self._files.disk.close(fd)

    def _check_last_entry(self, offsets: OffsetIndex, fd: int) -> None:
        """Raises CorruptIndexError unless the last entry matches the batch at its position."""
        if not len(offsets):
            return
        header = self._header_at(fd, offsets.last.position)
        if header is None or header.last_offset != offsets.last.offset:
            raise CorruptIndexError(f"entry {offsets.last} does not match a batch of this segment")

    def _header_at(self, fd: int, position: int) -> BatchHeader | None:
        """Returns the header of the batch that starts at `position`, or None."""
        files = self._files
        try:
            return next((header for _, header in scan_headers(files.disk, fd, position, files.size_bytes)), None)
        except CorruptBatchError:
            return None

    def load(self) -> None:
        """Loads the indexes from their files. Raises CorruptIndexError or FileNotFoundError if they must be rebuilt."""
        files = self._files
        base_offset, max_bytes = files.base_offset, self._max_bytes
        self.offsets = OffsetIndex.decode(base_offset, max_bytes, files.disk.read_file(files.path(INDEX_SUFFIX)))
        self.times = TimeIndex.decode(base_offset, max_bytes, files.disk.read_file(files.path(TIME_INDEX_SUFFIX)))
        if len(self.offsets) and not len(self.times):
            raise CorruptIndexError("the time index is empty, but the offset index has entries")
        self._check_last_entry(self.offsets, files.fd)
        self.trim()
        self.largest = self.times.last

    def check_end(self, end_offset: int) -> None:
        """Raises CorruptIndexError if the last time index entry is not below `end_offset`."""
        _check_last_time(self.times, end_offset)

    def write(self) -> None:
        """Writes missing entries to the files, without a sync. It may be repeated after an OSError."""
        files = self._files
        for suffix, index, entry_size_bytes in self._by_suffix():
            if index.written_count < len(index) or not files.disk.exists(files.path(suffix)):
                write_entries(files, suffix, index, entry_size_bytes)

    def trim(self) -> None:
        """Truncates the files after the entries in memory."""
        for suffix, index, entry_size_bytes in self._by_suffix():
            trim_entries(self._files, suffix, index, entry_size_bytes)

    def _by_suffix(self) -> Sequence[tuple[str, OffsetIndex | TimeIndex, int]]:
        return (
            (INDEX_SUFFIX, self.offsets, offset_index.ENTRY_SIZE_BYTES),
            (TIME_INDEX_SUFFIX, self.times, time_index.ENTRY_SIZE_BYTES),
        )

    # Growth and truncation of the log

    def note(self, last_offset: int, max_timestamp_ms: int, position: int, size_bytes: int) -> None:
        """Notes a batch at `position`, after all earlier ones. Adds an entry for it if the index interval is over."""
        self._note_timestamp(last_offset, max_timestamp_ms)
        if self._bytes_since_entry > self._interval_bytes and not self.offsets.is_full:
            self.offsets.append(last_offset, position)
            if not self.times.is_full:
                self.times.append_if_later(*self.largest)
            self._bytes_since_entry = 0
        self._bytes_since_entry += size_bytes

    def note_indexed(self, header: BatchHeader) -> None:
        """Notes the batch of the last index entry."""
        self._bytes_since_entry = header.size_bytes
        self._note_timestamp(header.last_offset, latest_timestamp_ms(header))

    def _note_timestamp(self, last_offset: int, max_timestamp_ms: int) -> None:
        if max_timestamp_ms > self.largest.timestamp_ms:
            self.largest = TimestampOffset(max_timestamp_ms, last_offset)

    def seal(self) -> None:
        """Adds the largest timestamp to the time index, after the last batch."""
        self.times.append_if_later(*self.largest)

    def truncate_to(self, offset: int) -> None:
        """Drops the entries at and above `offset`, after the log was truncated there."""
        self.offsets.truncate_to(offset)
        self.times.truncate_to(offset)
        self.trim()
        self._bytes_since_entry = self._files.size_bytes - self.offsets.last.position
        self.largest = self.times.last
        start = self.offsets.lookup(self.largest.offset).position
        for _, header in self._files.headers(start):
            self._note_timestamp(header.last_offset, latest_timestamp_ms(header))


def _check_last_time(times: TimeIndex, end_offset: int) -> None:
    if len(times) and times.last.offset >= end_offset:
        raise CorruptIndexError(f"time entry {times.last} is beyond offset {end_offset}")
