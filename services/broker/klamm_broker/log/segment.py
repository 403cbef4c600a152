"""One segment of a partition's log: `<base offset, 20 digits>.log` with its `.index` and `.timeindex`, and `.txnindex`.

A segment owns its files, the indexes in memory, the size, and the largest timestamp. Only the newest segment of a log
is appended to. A *released* segment holds no file descriptor and no index, only the few numbers above; `open()` brings
them back (`segment_pool.py` bounds how many are open). A transaction index without entries has no file.

Invariants:
- the `.log` file is whole batches from 0 to `size_bytes`; bytes beyond it exist only while an append is
  being undone;
- index entries in memory describe batches below `size_bytes`; the files may lag behind until `write_indexes`;
- offsets in a segment fit `base_offset + 2^31 - 1`, so that indexes can hold them.

Used on the event loop only, but for recovery, which runs before anything is served, and for a segment that compaction
writes, until it is put into the log. Follows Kafka's `LogSegment`.
"""

from __future__ import annotations

import errno
import logging
import os
import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from klamm.records.decoder import decode_batch
from klamm.records.errors import CorruptBatchError
from klamm.records.header import BatchHeader
from klamm_broker.log import offset_index, time_index, transaction_index
from klamm_broker.log.batch_scan import scan_checked, scan_headers
from klamm_broker.log.batch_starts import BatchStarts
from klamm_broker.log.disk import Buffer, Disk
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.offset_index import RELATIVE_OFFSET_MAX, CorruptIndexError, IndexEntry, OffsetIndex
from klamm_broker.log.storage_failure import is_disk_full
from klamm_broker.log.time_index import NO_TIMESTAMP_MS, TimeIndex, TimestampOffset
from klamm_broker.log.transaction_index import AbortedTransaction, TransactionIndex

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

logger = logging.getLogger(__name__)


class AppendedBatch(NamedTuple):
    """What a segment must know of a batch it appends."""

    last_offset: int
    max_timestamp_ms: int
    """-1 if no record has a timestamp, or there is none (`latest_timestamp_ms`)."""
    size_bytes: int


class FileSlice(NamedTuple):
    """Whole batches in a `.log` file: `size_bytes` from `position`."""

    position: int
    size_bytes: int


def latest_timestamp_ms(header: BatchHeader) -> int:
    """The largest timestamp of the records a batch has; of one that compaction emptied -1, whatever its header says."""
    return header.max_timestamp_ms if header.record_count else NO_TIMESTAMP_MS


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    return f"{directory}/{base_offset:020d}{suffix}"


class TimestampHit(NamedTuple):
    """A record found by its timestamp."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class Segment:
    """See the module's docstring."""

    __slots__ = (
        "_bytes_since_index_entry",
        "_disk",
        "_fd",
        "_first_timestamp_ms",
        "_index_interval_bytes",
        "_index_max_bytes",
        "_offset_index",
        "_starts",
        "_time_index",
        "_transaction_file_exists",
        "_transaction_index",
        "aborted_count",
        "base_offset",
        "created_ms",
        "damaged_at",
        "directory",
        "file_suffix",
        "lacks_transactions",
        "largest",
        "next_offset",
        "roll_jitter_ms",
        "size_bytes",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        config: LogConfig,
        created_ms: int,
        roll_jitter_ms: int,
        file_suffix: str = "",
    ) -> None:
        self._disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.file_suffix = file_suffix
        """Follows the names of all files while the segment is not part of the log yet (`segment_swap.py`)."""
        self._index_max_bytes = config.segment_index_bytes
        self._index_interval_bytes = config.index_interval_bytes
        self.created_ms = created_ms
        self.roll_jitter_ms = roll_jitter_ms
        self._reset()

    def _reset(self) -> None:
        self._fd = -1
        self._starts = BatchStarts()
        self._offset_index = OffsetIndex(self.base_offset, self._index_max_bytes)
        self._time_index = TimeIndex(self.base_offset, self._index_max_bytes)
        self._transaction_index = TransactionIndex(self.base_offset)
        self._transaction_file_exists = False
        self.aborted_count = 0
        """Aborted transactions whose markers are in the segment."""
        self.lacks_transactions = False
        """The transaction index is to be made again (`begin_transactions`)."""
        self._bytes_since_index_entry = 0
        self._first_timestamp_ms: int | None = None
        self.size_bytes = 0
        self.next_offset = self.base_offset
        """One past the last record; exact once the segment has been open."""
        self.largest = TimestampOffset(NO_TIMESTAMP_MS, self.base_offset)
        """The largest timestamp and the last offset of the first batch that has it."""
        self.damaged_at: int | None = None
        """Position of the first byte that `open` found not to be a batch, or None."""

    def path(self, suffix: str = LOG_SUFFIX) -> str:
        return segment_path(self.directory, self.base_offset, suffix + self.file_suffix)

    @property
    def paths(self) -> list[str]:
        """The log last: an index without a log is swept away on load, a log without an index is a live
        segment."""
        return [*self.index_paths, self.path(LOG_SUFFIX)]

    @property
    def index_paths(self) -> list[str]:
        suffixes = [INDEX_SUFFIX, TIME_INDEX_SUFFIX]
        if self._transaction_file_exists:
            suffixes.append(TRANSACTION_INDEX_SUFFIX)
        return [self.path(suffix) for suffix in suffixes]

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    # Creating, opening, releasing

    def create(self) -> None:
        """Makes the log and two indexes, empty, and opens the segment. Leaves none behind when it raises OSError."""
        try:
            self._fd = self._disk.open(self.path(), _OPEN_LOG | os.O_CREAT | os.O_TRUNC)
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                self._disk.close(self._disk.open(self.path(suffix), _CREATE_EMPTY))
        except OSError:
            self.release()
            self._disk.remove(self.paths)
            raise

    def attach(self, end_offset: int) -> bool:
        """Learns size and largest timestamp of an existing segment without opening it for use.

        `end_offset`: where the next segment begins.
        True if the last entries of both indexes agree with the log. Otherwise the indexes are missing,
        damaged or of another log, and `open` will rebuild them. Of the transaction index `lacks_transactions` tells."""
        self._reset()
        self.size_bytes = self._disk.size(self.path())
        self._load_transactions()
        self._drop_transactions()
        if not self.size_bytes:
            return self._disk.exists(self.path(INDEX_SUFFIX)) and self._disk.exists(self.path(TIME_INDEX_SUFFIX))
        try:
            last = self._tail(INDEX_SUFFIX, offset_index.ENTRY_SIZE_BYTES)
            last_time = self._tail(TIME_INDEX_SUFFIX, time_index.ENTRY_SIZE_BYTES)
            self._offset_index = OffsetIndex.decode(self.base_offset, self._index_max_bytes, last)
            self._time_index = TimeIndex.decode(self.base_offset, self._index_max_bytes, last_time)
            self._check_last_time(end_offset)
            self._check_last_entry_by_path()
        except (CorruptIndexError, CorruptBatchError, FileNotFoundError) as error:
            logger.warning("segment=%s index=unusable reason=%s", self.path(), error)
            return False
        self.largest = self._time_index.last
        # A log with records has a time index entry from when it was sealed, unless no record has a timestamp.
        usable = bool(len(self._time_index)) and (bool(len(self._offset_index)) or not last)
        self._drop_indexes()
        return usable

    def _tail(self, suffix: str, entry_size_bytes: int) -> bytes:
        path = self.path(suffix)
        size = self._disk.size(path)
        if size % entry_size_bytes:
            raise CorruptIndexError(f"{path} has {size} bytes, no multiple of {entry_size_bytes}")
        fd = self._disk.open(path, os.O_RDONLY)
        try:
            return self._disk.pread(fd, entry_size_bytes, max(0, size - entry_size_bytes))
        finally:
            self._disk.close(fd)

    def _check_last_entry_by_path(self) -> None:
        fd = self._disk.open(self.path(), os.O_RDONLY)
        try:
            self._check_last_entry(fd)
        finally:
            self._disk.close(fd)

    def _check_last_entry(self, fd: int) -> None:
        """The batch at the last entry's position must be the one the entry names."""
        last = self._offset_index.last
        if not len(self._offset_index):
            return
        header = self._header_at(fd, last.position)
        if header is None or header.last_offset != last.offset:
            raise CorruptIndexError(f"entry {last} is not of this log")

    def _check_last_time(self, end_offset: int) -> None:
        """The last record that the time index knows must be one of this segment."""
        if len(self._time_index) and self._time_index.last.offset >= end_offset:
            raise CorruptIndexError(f"time entry {self._time_index.last} is beyond offset {end_offset}")

    def _header_at(self, fd: int, position: int) -> BatchHeader | None:
        """The header of the batch that starts at `position`, None if none does."""
        try:
            return next((header for _, header in scan_headers(self._disk, fd, position, self.size_bytes)), None)
        except CorruptBatchError:
            return None

    def open(self) -> None:
        """Opens the log for reading and appending and loads its indexes, rebuilding them where they do not
        fit."""
        if self.is_open:
            return
        self._open_log()
        self._load_transactions()
        try:
            self._load_indexes()
            self._complete(scan_headers(self._disk, self._fd, self._offset_index.last.position, self.size_bytes))
            self._check_last_time(self.next_offset)
            self.write_indexes_if_room()
        except (CorruptIndexError, FileNotFoundError) as error:
            logger.warning("segment=%s index=rebuilt reason=%s", self.path(), error)
            self.rebuild_indexes()

    def _open_log(self) -> None:
        self._fd = self._disk.open(self.path(), _OPEN_LOG)
        self.size_bytes = self._disk.size(self.path())
        self._bytes_since_index_entry = 0
        self.next_offset = self.base_offset
        self.largest = TimestampOffset(NO_TIMESTAMP_MS, self.base_offset)
        self.damaged_at = None

    def _load_indexes(self) -> None:
        self._offset_index = OffsetIndex.decode(
            self.base_offset, self._index_max_bytes, self._disk.read_file(self.path(INDEX_SUFFIX))
        )
        self._time_index = TimeIndex.decode(
            self.base_offset, self._index_max_bytes, self._disk.read_file(self.path(TIME_INDEX_SUFFIX))
        )
        if len(self._offset_index) and not len(self._time_index):
            raise CorruptIndexError("the time index is empty and the offset index is not")
        self._check_last_entry(self._fd)
        self._trim_index_files()
        self.largest = self._time_index.last

    def _load_transactions(self) -> None:
        """From the file, unless there is more in memory already."""
        path = self.path(TRANSACTION_INDEX_SUFFIX)
        self._transaction_file_exists = self._disk.exists(path)
        if self.lacks_transactions or len(self._transaction_index):
            return
        data = self._disk.read_file(path) if self._transaction_file_exists else b""
        try:
            self._transaction_index = TransactionIndex.decode(self.base_offset, data)
            if len(self._transaction_index) < self.aborted_count:
                raise CorruptIndexError(f"{len(self._transaction_index)} of {self.aborted_count} entries")
            self.aborted_count = len(self._transaction_index)
        except CorruptIndexError as error:
            logger.warning("segment=%s transaction_index=unusable reason=%s", self.path(), error)
            self.lacks_transactions = True

    def _drop_transactions(self) -> None:
        """What the file does not have stays: it cannot be found again in the segment alone."""
        if self._transaction_index.written_count == len(self._transaction_index):
            self._transaction_index = TransactionIndex(self.base_offset)

    def begin_transactions(self) -> None:
        """If the transaction index is lacking it is empty now; whoever calls appends all its entries."""
        if self.lacks_transactions:
            self.lacks_transactions = False
            self._clear_transactions()

    def _clear_transactions(self) -> None:
        self._transaction_index = TransactionIndex(self.base_offset)
        self.aborted_count = 0
        self._trim_index_files()

    def rebuild_indexes(self) -> None:
        """Both indexes anew from the batch headers, written to their files. The log is not changed.

        Where the log itself is damaged they end, but what was known of the records beyond stays: offsets that were
        given are never given again."""
        next_offset, largest = self.next_offset, self.largest
        self._clear_indexes()
        self._complete(scan_headers(self._disk, self._fd, 0, self.size_bytes))
        self.next_offset = max(self.next_offset, next_offset)
        self.largest = max(self.largest, largest, key=lambda entry: entry.timestamp_ms)
        self._time_index.append_if_later(*self.largest)
        self.write_indexes_if_room()

    def _clear_indexes(self) -> None:
        self._drop_indexes()
        self._bytes_since_index_entry = 0
        self.largest = TimestampOffset(NO_TIMESTAMP_MS, self.base_offset)
        self.next_offset = self.base_offset
        self._trim_index_files()

    def write_indexes_if_room(self) -> None:
        """A full disk must not keep a log from being opened: its indexes are made again from it when needed."""
        try:
            self.write_indexes()
        except OSError as error:
            if not is_disk_full(error):
                raise
            logger.warning("segment=%s index=not written reason=%s", self.path(), error)

    def _complete(
        self,
        batches: Iterator[tuple[int, BatchHeader]],
        observe: Callable[[BatchHeader], None] | None = None,
    ) -> None:
        """Takes note of the batches from the last index entry on, adding entries that are missing.

        Stops at the first byte that is not a batch in order, and leaves its position in `damaged_at`."""
        indexed_position = self._offset_index.last.position if len(self._offset_index) else -1
        end = max(indexed_position, 0)
        self.damaged_at = None
        try:
            for position, header in batches:
                self._check_in_order(header)
                if position == indexed_position:
                    self._bytes_since_index_entry = header.size_bytes
                    self._note_timestamp(header.last_offset, latest_timestamp_ms(header))
                else:
                    self._note(header.last_offset, latest_timestamp_ms(header), position, header.size_bytes)
                if observe is not None:
                    observe(header)
                self.next_offset = header.next_offset
                end = position + header.size_bytes
        except CorruptBatchError as error:
            logger.warning("segment=%s damaged_at=%d reason=%s", self.path(), end, error)
            self.damaged_at = end

    def _check_in_order(self, header: BatchHeader) -> None:
        if header.base_offset < self.next_offset or not self.fits_offset(header.last_offset):
            raise CorruptBatchError(
                f"offsets {header.base_offset} to {header.last_offset} where {self.next_offset} should follow"
            )

    def recover(self, observe: Callable[[BatchHeader], None]) -> int:
        """Checks every batch, cuts the log at the first bad byte and rebuilds both indexes.

        `observe` gets the header of each good batch. Returns how many bytes were cut. The segment is open
        afterwards."""
        if not self.is_open:
            self._open_log()
        self.lacks_transactions = True
        self._clear_indexes()
        self._complete(scan_checked(self._disk, self._fd, 0, self.size_bytes), observe)
        cut = 0
        if self.damaged_at is not None:
            cut = self.size_bytes - self.damaged_at
            self._disk.ftruncate(self._fd, self.damaged_at)
            self.size_bytes, self.damaged_at = self.damaged_at, None
        self._time_index.append_if_later(*self.largest)
        self.write_indexes_if_room()
        return cut

    def _drop_indexes(self) -> None:
        self._starts.forget()
        self._offset_index = OffsetIndex(self.base_offset, self._index_max_bytes)
        self._time_index = TimeIndex(self.base_offset, self._index_max_bytes)

    def release(self) -> None:
        """Gives file descriptor and indexes back; unwritten index entries must have been written."""
        if self.is_open:
            self._disk.close(self._fd)
            self._fd = -1
        self._drop_indexes()
        self._drop_transactions()

    # Appending

    def fits_offset(self, last_offset: int) -> bool:
        """Whether the indexes can hold an offset (relative to the base it must fit 31 bits)."""
        return last_offset - self.base_offset <= RELATIVE_OFFSET_MAX

    def should_roll(
        self, *, append_bytes: int, last_offset: int, max_timestamp_ms: int, now_ms: int, config: LogConfig
    ) -> bool:
        """Whether an append must go to a new segment (Kafka's `LogSegment.shouldRoll`)."""
        if not self.size_bytes:
            return not self.fits_offset(last_offset)
        return (
            self.size_bytes + append_bytes > config.segment_bytes
            or self._waited_ms(max_timestamp_ms, now_ms) > config.roll_ms - self.roll_jitter_ms
            or self._offset_index.is_full
            or self._time_index.is_full
            or last_offset - self.base_offset > RELATIVE_OFFSET_MAX
        )

    def age_ms(self, now_ms: int) -> int:
        """For how long there has been a record in it, as far as timestamps tell."""
        return self._waited_ms(now_ms, now_ms)

    def _waited_ms(self, max_timestamp_ms: int, now_ms: int) -> int:
        """How old the segment is by the records' clock, or by ours if the first batch has no timestamp."""
        first_timestamp_ms = self._first_timestamp_ms
        if first_timestamp_ms is None:
            first_timestamp_ms = self.first_timestamp_ms()
        if first_timestamp_ms >= 0:
            return max_timestamp_ms - first_timestamp_ms
        return now_ms - self.created_ms

    def first_timestamp_ms(self) -> int:
        """The largest timestamp of the first batch, -1 if it has none; the segment need not be open."""
        if self._first_timestamp_ms is None:
            fd = self.duplicate_fd()
            try:
                for _, header in scan_headers(self._disk, fd, 0, self.size_bytes):
                    self._first_timestamp_ms = header.max_timestamp_ms
                    break
            finally:
                self._disk.close(fd)
        return NO_TIMESTAMP_MS if self._first_timestamp_ms is None else self._first_timestamp_ms

    def append(self, buffers: Sequence[Buffer], batches: Sequence[AppendedBatch], size_bytes: int) -> None:
        """Writes one record set at the end and indexes it.

        `buffers` together are the `batches`, whose offsets go on from `next_offset`. If the write fails the
        log is cut back to what it was and the OSError passes on; if even that fails, the second OSError
        says so."""
        try:
            self._disk.writev_all(self._fd, buffers, size_bytes)
        except OSError:
            self._disk.ftruncate(self._fd, self.size_bytes)
            raise
        if not self.size_bytes:
            self._first_timestamp_ms = batches[0].max_timestamp_ms
        position = self.size_bytes
        self._starts.note(self.next_offset, position)
        for last_offset, max_timestamp_ms, batch_bytes in batches:
            self._note(last_offset, max_timestamp_ms, position, batch_bytes)
            position += batch_bytes
        self.size_bytes = position
        self.next_offset = last_offset + 1

    def _note(self, last_offset: int, max_timestamp_ms: int, position: int, size_bytes: int) -> None:
        self._note_timestamp(last_offset, max_timestamp_ms)
        if self._bytes_since_index_entry > self._index_interval_bytes and not self._offset_index.is_full:
            self._offset_index.append(last_offset, position)
            if not self._time_index.is_full:
                self._time_index.append_if_later(*self.largest)
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += size_bytes

    def _note_timestamp(self, last_offset: int, max_timestamp_ms: int) -> None:
        if max_timestamp_ms > self.largest.timestamp_ms:
            self.largest = TimestampOffset(max_timestamp_ms, last_offset)

    def append_aborted(self, entry: AbortedTransaction) -> None:
        """The transaction's marker is in the segment, after those of all entries before."""
        self._transaction_index.append(entry)
        self.aborted_count += 1

    @property
    def has_unwritten_aborted(self) -> bool:
        """Whether the file of the transaction index lacks entries, for want of space."""
        return self._transaction_index.written_count < len(self._transaction_index)

    # Reading

    def read(self, part: FileSlice) -> bytes:
        """The bytes of a slice that `locate` gave."""
        return self._disk.read_all(self._fd, part.size_bytes, part.position)

    def find_batch(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Position and header of the first batch that ends at or after `offset`; None if there is none.

        Raises CorruptIndexError if the index points somewhere else than to a batch it names,
        CorruptBatchError if the log itself is damaged there."""
        entry = self._offset_index.lookup(offset)
        headers = scan_headers(self._disk, self._fd, entry.position, self.size_bytes)
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
            raise CorruptIndexError(f"entry {entry} points at no batch: {error}") from None
        if header.last_offset != entry.offset:
            raise CorruptIndexError(f"entry {entry} points at a batch that ends with {header.last_offset}")
        return header

    def locate(self, offset: int, max_bytes: int, end_position: int, *, min_one: bool) -> FileSlice | None:
        """Whole batches from the one that holds `offset` on, at most `max_bytes` and none beyond
        `end_position`.

        With `min_one` the first batch is given even if it alone is larger (KIP-74). None if the segment
        ends before `offset`; an empty slice if nothing fits. Raises as `find_batch`."""
        known = self._starts.find(offset)
        if known is not None and known < end_position:
            limit = min(known + max_bytes, end_position)
            if limit == end_position:
                return FileSlice(known, end_position - known)
            if (indexed := self._offset_index.floor_position(limit)) > known:
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
        """The last batch end <= `limit`, given that `position` is one."""
        position = max(position, self._offset_index.floor_position(limit))
        for start, header in scan_headers(self._disk, self._fd, position, self.size_bytes):
            if start + header.size_bytes > limit:
                self._starts.note(header.base_offset, start)
                break
            position = start + header.size_bytes
        return position

    def aborted_between(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """As `TransactionIndex.between`. Raises OSError when the index was lost since the log was opened."""
        if self.lacks_transactions:
            raise OSError(errno.EIO, "the transaction index is damaged", self.path(TRANSACTION_INDEX_SUFFIX))
        return self._transaction_index.between(start_offset, end_offset)

    def offset_from(self, position: int) -> int | None:
        """Some offset that all batches before `position`, a batch boundary, are below; None: none is known."""
        return self._offset_index.offset_from(position)

    def find_timestamp(self, timestamp_ms: int, start_offset: int) -> TimestampHit | None:
        """The first record at or after `start_offset` whose timestamp is `timestamp_ms` or later."""
        entry = self._time_index.lookup(timestamp_ms)
        start = self._offset_index.lookup(max(entry.offset, start_offset)).position
        for position, header in self.headers(start):
            if header.max_timestamp_ms < timestamp_ms or header.last_offset < start_offset:
                continue
            batch = self.read(FileSlice(position, header.size_bytes))
            for record in decode_batch(batch):
                if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                    return TimestampHit(record.timestamp_ms, record.offset, header.partition_leader_epoch)
        return None

    def largest_timestamp_from(self, start_offset: int) -> int:
        """The largest timestamp of the records at or after `start_offset`, -1 if there is none."""
        if start_offset <= self.base_offset:
            return self.largest.timestamp_ms
        found = self.find_batch(start_offset)
        if found is None:
            return NO_TIMESTAMP_MS
        position, header = found
        first = decode_batch(self.read(FileSlice(position, header.size_bytes)))
        in_first = [record.timestamp_ms for record in first if record.offset >= start_offset]
        after = [latest_timestamp_ms(header) for _, header in self.headers(position + header.size_bytes)]
        return max([NO_TIMESTAMP_MS, *in_first, *after])

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from a batch boundary on."""
        return scan_headers(self._disk, self._fd, position, self.size_bytes)

    def readable_headers(self) -> Iterator[BatchHeader]:
        """Headers of all batches up to the end, or up to the first damage that `open` found."""
        end = self.size_bytes if self.damaged_at is None else self.damaged_at
        return (header for _, header in scan_headers(self._disk, self._fd, 0, end))

    # Truncating, sealing, flushing

    def truncate_to(self, offset: int) -> int:
        """Cuts the first batch that ends at or after `offset` and all after it; returns the bytes cut."""
        found = self.find_batch(offset)
        if found is None:
            return 0
        position, header = found
        cut = self.size_bytes - position
        self._disk.ftruncate(self._fd, position)
        self.size_bytes = position
        self._starts.forget()
        self.next_offset = min(offset, header.base_offset)
        self._offset_index.truncate_to(self.next_offset)
        self._time_index.truncate_to(self.next_offset)
        if not self.lacks_transactions:
            self._transaction_index.truncate_to(self.next_offset)
            self.aborted_count = len(self._transaction_index)
        self._trim_index_files()
        if not position:
            self._first_timestamp_ms = None
        self._bytes_since_index_entry = position - self._offset_index.last.position
        self._reload_largest()
        return cut

    def _reload_largest(self) -> None:
        self.largest = self._time_index.last
        start = self._offset_index.lookup(self.largest.offset).position
        for _, header in self.headers(start):
            self._note_timestamp(header.last_offset, latest_timestamp_ms(header))

    def seal(self) -> None:
        """Nothing will be appended any more: the largest timestamp goes into the time index, both to their
        files."""
        self._time_index.append_if_later(*self.largest)
        self.write_indexes()

    def write_indexes(self) -> None:
        """Brings the index files up to the indexes in memory; not synced. Safe to repeat after it raised
        OSError."""
        for index, suffix, entry_size in self._indexes():
            data = index.unwritten()
            if not data and (index is self._transaction_index or self._disk.exists(self.path(suffix))):
                continue
            fd = self._disk.open(self.path(suffix), os.O_WRONLY | os.O_CREAT)
            try:
                self._disk.pwrite_all(fd, data, index.written_count * entry_size)
            finally:
                self._disk.close(fd)
            index.written_count = len(index)
            self._transaction_file_exists |= index is self._transaction_index

    def _trim_index_files(self) -> None:
        for index, suffix, entry_size in self._indexes():
            if index is self._transaction_index and self.lacks_transactions:
                continue  # that it is damaged must still be seen at the next start
            size = index.written_count * entry_size
            if not self._disk.exists(self.path(suffix)) or self._disk.size(self.path(suffix)) == size:
                continue
            fd = self._disk.open(self.path(suffix), os.O_WRONLY)
            try:
                self._disk.ftruncate(fd, size)
            finally:
                self._disk.close(fd)

    def _indexes(self) -> tuple[tuple[OffsetIndex | TimeIndex | TransactionIndex, str, int], ...]:
        return (
            (self._offset_index, INDEX_SUFFIX, offset_index.ENTRY_SIZE_BYTES),
            (self._time_index, TIME_INDEX_SUFFIX, time_index.ENTRY_SIZE_BYTES),
            (self._transaction_index, TRANSACTION_INDEX_SUFFIX, transaction_index.ENTRY_SIZE_BYTES),
        )

    @property
    def open_fd(self) -> int:
        """The descriptor of an open segment's log, -1 of another one: valid until the caller lets others run."""
        return self._fd

    def duplicate_fd(self) -> int:
        """A descriptor of the log that is the caller's: a disk thread may read, sync and close it whatever
        happens to the segment meanwhile."""
        return self._disk.dup(self._fd) if self.is_open else self._disk.open(self.path(), os.O_RDONLY)

    def check_invariants(self) -> None:
        """Asserts what the module's docstring states; costs a scan of the segment."""
        assert self.is_open, self.base_offset
        assert self._disk.size(self.path()) == self.size_bytes, (self.base_offset, self.size_bytes)
        next_offset, starts = self.base_offset, {}
        for position, header in self.headers():
            assert header.base_offset >= next_offset, (self.base_offset, header, next_offset)
            starts[position] = header.last_offset
            next_offset = header.next_offset
        assert next_offset <= self.next_offset, (self.base_offset, next_offset, self.next_offset)
        for entry in self._transaction_index.entries():
            assert entry.last_offset < self.next_offset, (self.base_offset, entry, self.next_offset)
        for offset, position in self._offset_index.entries():
            assert starts.get(position) == offset, (self.base_offset, offset, position)


def roll_jitter_ms(config: LogConfig, rng: random.Random) -> int:
    """What a new segment takes off `segment.ms`."""
    bound = min(config.segment_jitter_ms, config.roll_ms)
    return rng.randrange(bound) if bound > 0 else 0


_OPEN_LOG = os.O_RDWR | os.O_APPEND
_CREATE_EMPTY = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
