"""One segment of a partition's log: its files, its offsets and timestamps, and its state.

Only the newest segment of a log is appended to. A *released* segment holds no file descriptor and no index, only a few
numbers: its size and offsets, its largest timestamp. `open()` restores the rest (`segment_pool.py` bounds how many
are open). Kafka's `LogSegment`. Callers use its parts directly:

| part | module | owns |
|---|---|---|
| `files` | `segment_files.py` | the files' names, the descriptor, the size |
| `indexes` | `segment_indexes.py` | offset index, time index, the largest timestamp |
| `aborted` | `aborted_transactions.py` | the transaction index |
| `reader` | `segment_reader.py` | nothing: finds batches and records |
| `state` | `segment_state.py` | which calls are legal |

Invariants (`check_invariants`):
- the `.log` file is whole batches from 0 to `files.size_bytes`; bytes beyond it exist only while an append is
  being undone;
- index entries in memory describe batches below `size_bytes`; the files may lag behind until `write_indexes`;
- offsets in a segment fit `base_offset + 2^31 - 1`, so that indexes can hold them.

Only the event loop uses a segment, with two exceptions. Recovery runs on threads before the log is served. Compaction
and repair write new segments on threads until these are put into the log.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Sequence

from klamm.records.errors import CorruptBatchError
from klamm.records.header import BatchHeader
from klamm_broker.log.files.storage_failure import is_disk_full
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.segment.aborted_transactions import AbortedTransactions
from klamm_broker.log.segment.batch_scan import scan_checked, scan_headers
from klamm_broker.log.segment.batch_starts import BatchStarts
from klamm_broker.log.segment.offset_index import RELATIVE_OFFSET_MAX, CorruptIndexError
from klamm_broker.log.segment.record_set import AppendedBatch
from klamm_broker.log.segment.segment_files import SWAP_SUFFIX, SegmentFiles
from klamm_broker.log.segment.segment_indexes import SegmentIndexes
from klamm_broker.log.segment.segment_reader import SegmentReader
from klamm_broker.log.segment.segment_state import LEGAL_TRANSITIONS, SegmentState
from klamm_broker.log.segment.time_index import NO_TIMESTAMP_MS, latest_timestamp_ms
from klamm_server.runtime.disk import Buffer, Disk

logger = logging.getLogger(__name__)


class Segment:
    """One segment of a partition's log. The module's docstring has its parts and invariants."""

    __slots__ = (
        "_disk",
        "_first_timestamp_ms",
        "_starts",
        "aborted",
        "base_offset",
        "created_ms",
        "damaged_at",
        "files",
        "indexes",
        "next_offset",
        "reader",
        "roll_jitter_ms",
        "state",
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
        """`file_suffix` is set for the output of a compaction or repair (`segment_swap.py`)."""
        self._disk = disk
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.roll_jitter_ms = roll_jitter_ms
        self.state = SegmentState.UNKNOWN
        self.files = SegmentFiles(disk, directory, base_offset, file_suffix)
        self.indexes = SegmentIndexes(self.files, config)
        self.aborted = AbortedTransactions(self.files)
        self._starts = BatchStarts()
        self.reader = SegmentReader(self.files, self.indexes, self._starts)
        self._first_timestamp_ms: int | None = None
        self.next_offset = base_offset
        """The offset after the last record. It is exact after the segment was open once."""
        self.damaged_at: int | None = None
        """The position of the first byte that `open` found not to be a batch, or None."""

    # States

    def _become(self, state: SegmentState) -> None:
        assert state in LEGAL_TRANSITIONS[self.state], (self.files.path(), self.state, state)
        self.state = state

    def create(self) -> None:
        """Creates the empty log and two empty indexes, and opens the segment. After an OSError, none of the files is
        left."""
        assert self.state is SegmentState.UNKNOWN, (self.files.path(), self.state)
        self.files.create()
        self._become(SegmentState.WRITING if self.files.suffix else SegmentState.ACTIVE)

    def attach(self, end_offset: int) -> bool:
        """Reads the size and the largest timestamp of an existing segment without opening it for use.

        `end_offset` is the base offset of the next segment. Returns True if the last entries of both indexes match the
        log. Otherwise the indexes are missing, damaged or of another log, and `open` will rebuild them.
        `aborted.is_lacking` tells the same of the transaction index."""
        assert self.state is SegmentState.UNKNOWN, (self.files.path(), self.state)
        self.files.measure()
        self._become(SegmentState.RELEASED)
        self.aborted.load()
        self.aborted.drop()
        return self.indexes.attach(end_offset)

    def open(self) -> None:
        """Opens the log for reading and loads its indexes. Rebuilds indexes that do not match the log."""
        if self.files.is_open:
            return
        self._open_log()
        self.aborted.load()
        self.aborted.trim()
        try:
            self.indexes.load()
            self._complete(self.files.headers(self.indexes.offsets.last.position))
            self.indexes.check_end(self.next_offset)
            self.try_write_indexes()
        except (CorruptIndexError, FileNotFoundError) as error:
            logger.warning("rebuilding a damaged index, segment=%s reason=%s", self.files.path(), error)
            self.rebuild_indexes()

    def _open_log(self) -> None:
        self.files.open()
        self._become(SegmentState.OPEN)
        self.indexes.clear()
        self.next_offset = self.base_offset
        self.damaged_at = None

    def activate(self) -> None:
        """Makes the segment the newest of its log, and opens it."""
        self.open()
        if self.state is not SegmentState.ACTIVE:
            self._become(SegmentState.ACTIVE)

    def deactivate(self) -> None:
        """Ends the state ACTIVE, because appends go to the next segment from now on."""
        assert self.state is SegmentState.ACTIVE, (self.files.path(), self.state)
        self._become(SegmentState.OPEN)

    def release(self) -> None:
        """Frees the file descriptor and the indexes. Unwritten index entries must have been written before."""
        if self.files.is_open:
            self.files.close()
            is_output = self.state is SegmentState.WRITING
            self._become(SegmentState.WRITTEN if is_output else SegmentState.RELEASED)
        self._starts.forget()
        self.indexes.drop()
        self.aborted.drop()

    def announce(self) -> None:
        """Sets the paths' suffix `.swap`: the output will take the place of other segments (`segment_swap.py`)."""
        self._become(SegmentState.ANNOUNCED)
        self.files.suffix = SWAP_SUFFIX

    def take_place(self) -> None:
        """Makes the announced output part of the log, with the final paths of its files."""
        assert self.state is SegmentState.ANNOUNCED, (self.files.path(), self.state)
        self._become(SegmentState.RELEASED)
        self.files.suffix = ""

    def retire(self) -> None:
        """Releases the segment for ever, because no log contains it any more. The caller removes its files."""
        self.release()
        if self.state is not SegmentState.DELETED:
            self._become(SegmentState.DELETED)

    def delete(self) -> None:
        """Retires the segment and removes its files."""
        self.retire()
        self.files.remove()

    # Reading the log's structure

    def rebuild_indexes(self) -> None:
        """Rebuilds both indexes from the batch headers, and writes them to their files. The log is not changed.

        The new indexes end where the log itself is damaged. The next offset and the largest timestamp never become
        smaller, so that no offset is assigned twice."""
        indexes = self.indexes
        next_offset, largest = self.next_offset, indexes.largest
        self._clear()
        self._complete(self.files.headers())
        self.next_offset = max(self.next_offset, next_offset)
        indexes.largest = max(indexes.largest, largest, key=lambda entry: entry.timestamp_ms)
        indexes.seal()
        self.try_write_indexes()

    def recover(self, observe: Callable[[BatchHeader], None]) -> int:
        """Checks every batch, truncates the log at the first bad byte, and rebuilds both indexes.

        `observe` gets the header of each good batch. Returns the number of truncated bytes. The segment is open
        afterwards."""
        if not self.files.is_open:
            self._open_log()
        self.aborted.is_lacking = True
        self._clear()
        self._complete(scan_checked(self._disk, self.files.fd, 0, self.files.size_bytes), observe)
        cut_bytes = 0
        if self.damaged_at is not None:
            cut_bytes = self.files.truncate_to(self.damaged_at)
            self.damaged_at = None
        self.indexes.seal()
        self.try_write_indexes()
        return cut_bytes

    def _clear(self) -> None:
        self._starts.forget()
        self.indexes.clear()
        self.next_offset = self.base_offset
        self.indexes.trim()
        self.aborted.trim()

    def _complete(
        self,
        batches: Iterator[tuple[int, BatchHeader]],
        observe: Callable[[BatchHeader], None] | None = None,
    ) -> None:
        """Reads the batches from the last index entry on, and adds missing entries.

        Stops at the first byte that is not a batch in order, and sets `damaged_at` to its position."""
        indexes = self.indexes
        indexed_position = indexes.offsets.last.position if len(indexes.offsets) else -1
        end = max(indexed_position, 0)
        self.damaged_at = None
        try:
            for position, header in batches:
                self._check_in_order(header)
                if position == indexed_position:
                    indexes.note_indexed(header)
                else:
                    indexes.note(header.last_offset, latest_timestamp_ms(header), position, header.size_bytes)
                if observe is not None:
                    observe(header)
                self.next_offset = header.next_offset
                end = position + header.size_bytes
        except CorruptBatchError as error:
            logger.warning("found a damaged batch, segment=%s position=%d reason=%s", self.files.path(), end, error)
            self.damaged_at = end

    def _check_in_order(self, header: BatchHeader) -> None:
        if header.base_offset < self.next_offset or not self._fits_offset(header.last_offset):
            raise CorruptBatchError(
                f"a batch has offsets {header.base_offset} to {header.last_offset}; expected {self.next_offset} or"
                " later"
            )

    def readable_headers(self) -> Iterator[BatchHeader]:
        """Yields the headers of all batches up to the end, or up to the first damage that `open` found."""
        files = self.files
        end = files.size_bytes if self.damaged_at is None else self.damaged_at
        return (header for _, header in scan_headers(self._disk, files.fd, 0, end))

    # Appending

    def _fits_offset(self, last_offset: int) -> bool:
        """Returns True if the indexes can hold the offset, which must fit 31 bits relative to the base offset."""
        return last_offset - self.base_offset <= RELATIVE_OFFSET_MAX

    def should_roll(
        self, *, append_bytes: int, last_offset: int, max_timestamp_ms: int, now_ms: int, config: LogConfig
    ) -> bool:
        """Returns True if an append must go to a new segment (Kafka's `LogSegment.shouldRoll`)."""
        size_bytes, indexes = self.files.size_bytes, self.indexes
        if not size_bytes:
            return not self._fits_offset(last_offset)
        return (
            size_bytes + append_bytes > config.segment_bytes
            or self._waited_ms(max_timestamp_ms, now_ms) > config.roll_ms - self.roll_jitter_ms
            or indexes.offsets.is_full
            or indexes.times.is_full
            or last_offset - self.base_offset > RELATIVE_OFFSET_MAX
        )

    def age_ms(self, now_ms: int) -> int:
        """Returns the age of the segment's first record by its timestamp, in milliseconds."""
        return self._waited_ms(now_ms, now_ms)

    def _waited_ms(self, max_timestamp_ms: int, now_ms: int) -> int:
        """Returns the age of the segment by the records' timestamps, or by the broker's clock if the first batch has no
        timestamp."""
        first_timestamp_ms = self._first_timestamp_ms
        if first_timestamp_ms is None:
            first_timestamp_ms = self.first_timestamp_ms()
        if first_timestamp_ms >= 0:
            return max_timestamp_ms - first_timestamp_ms
        return now_ms - self.created_ms

    def first_timestamp_ms(self) -> int:
        """Returns the largest timestamp of the first batch, or -1 if it has none. The segment need not be open."""
        if self._first_timestamp_ms is None:
            fd = self.files.duplicate_fd()
            try:
                for _, header in scan_headers(self._disk, fd, 0, self.files.size_bytes):
                    self._first_timestamp_ms = header.max_timestamp_ms
                    break
            finally:
                self._disk.close(fd)
        return NO_TIMESTAMP_MS if self._first_timestamp_ms is None else self._first_timestamp_ms

    def append(self, buffers: Sequence[Buffer], batches: Sequence[AppendedBatch], size_bytes: int) -> None:
        """Writes one record set at the end and indexes it.

        `buffers` together are the `batches`, whose offsets begin at `next_offset`. If the write fails, the file is
        truncated to its old size. Raises the OSError of the write, or that of the truncation if this fails too."""
        assert self.state is _ACTIVE or self.state is _WRITING, (self.files.path(), self.state)
        files = self.files
        position = files.size_bytes
        try:
            self._disk.writev_all(files.fd, buffers, size_bytes)
        except OSError:
            self._disk.ftruncate(files.fd, position)
            raise
        if not position:
            self._first_timestamp_ms = batches[0].max_timestamp_ms
        self._starts.note(self.next_offset, position)
        note = self.indexes.note
        for last_offset, max_timestamp_ms, batch_bytes in batches:
            note(last_offset, max_timestamp_ms, position, batch_bytes)
            position += batch_bytes
        files.size_bytes = position
        self.next_offset = last_offset + 1

    # Truncating, sealing, flushing

    def truncate_to(self, offset: int) -> int:
        """Removes the first batch that ends at or after `offset`, and all batches after it. Returns the number of
        removed bytes."""
        assert self.state is _ACTIVE, (self.files.path(), self.state)
        found = self.reader.find_batch(offset)
        if found is None:
            return 0
        position, header = found
        cut_bytes = self.files.truncate_to(position)
        self._starts.forget()
        self.next_offset = min(offset, header.base_offset)
        self.indexes.truncate_to(self.next_offset)
        self.aborted.truncate_to(self.next_offset)
        if not position:
            self._first_timestamp_ms = None
        return cut_bytes

    def seal(self) -> None:
        """Ends appending: adds the largest timestamp to the time index, and writes both indexes to their files."""
        self.indexes.seal()
        self.write_indexes()

    def write_indexes(self) -> None:
        """Writes missing index entries to the files, without a sync. It may be repeated after an OSError."""
        self.indexes.write()
        self.aborted.write()

    def try_write_indexes(self) -> None:
        """Writes the indexes unless the disk is full. A full disk must not prevent opening a log, because indexes can
        be rebuilt."""
        try:
            self.write_indexes()
        except OSError as error:
            if not is_disk_full(error):
                raise
            logger.warning("could not write the indexes, segment=%s reason=%s", self.files.path(), error)

    def check_invariants(self) -> None:
        """Asserts the invariants in the module's docstring. Scans the segment."""
        files = self.files
        assert files.is_open, self.base_offset
        assert self.state in (_ACTIVE, _WRITING, SegmentState.OPEN), (self.base_offset, self.state)
        assert self._disk.size(files.path()) == files.size_bytes, (self.base_offset, files.size_bytes)
        next_offset, starts = self.base_offset, {}
        for position, header in files.headers():
            assert header.base_offset >= next_offset, (self.base_offset, header, next_offset)
            starts[position] = header.last_offset
            next_offset = header.next_offset
        assert next_offset <= self.next_offset, (self.base_offset, next_offset, self.next_offset)
        self.aborted.check_invariants(self.next_offset)
        for offset, position in self.indexes.offsets.entries():
            assert starts.get(position) == offset, (self.base_offset, offset, position)


def roll_jitter_ms(config: LogConfig, rng: random.Random) -> int:
    """Returns the random time by which a new segment rolls earlier than `segment.ms`, in milliseconds."""
    bound = min(config.segment_jitter_ms, config.roll_ms)
    return rng.randrange(bound) if bound > 0 else 0


_ACTIVE, _WRITING = SegmentState.ACTIVE, SegmentState.WRITING
"""Module constants, because every append reads them, and attributes of the enum class cost three times as much."""
