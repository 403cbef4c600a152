"""Checks whether the files of a sealed segment still contain what was written. Uses their bytes alone. Pure.

A walk checks every batch of the `.log` file. The table has the rules for a batch, and the bytes that each rule covers:

| bytes of a batch | rule |
|---|---|
| 16 to the end | the magic is 2, the CRC-32C holds, counts and compression make sense |
| 0 to 8, base offset | offsets grow, and stay between the segment's base offset and the next segment's |
| 8 to 12, length | the checksum over that length holds, and the file ends where a batch does |
| 12 to 16, leader epoch | it is the one that the log's epochs give for the offset |

After a batch that breaks a rule, the walk continues with the next batch that keeps all rules. Only the length shows
where a batch ends. If the length is damaged, the walk searches for the next batch. It may mistake a batch inside a
record's value for a batch of the log, so a damaged range may seem too short. `segment_rewrite.py` compares the range
with another replica's and refuses it.

Compaction leaves gaps between offsets. The walk may miss a changed base offset beside a gap. Elsewhere, the batch
overlaps a neighbour. Of two batches that overlap, the one behind a gap is damaged.

Indexes are compared on the way: their entries must name batches of this log. Kafka has no such check while it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from klamm.model import NO_LEADER_EPOCH
from klamm.records.errors import CorruptBatchError
from klamm.records.header import (
    HEADER_SIZE_BYTES,
    MAGIC,
    PREFIX_SIZE_BYTES,
    BatchHeader,
    read_header,
    validate_batch,
)
from klamm_broker.log.files.leader_epochs import EpochEntry
from klamm_broker.log.segment import offset_index, time_index
from klamm_broker.log.segment.offset_index import CorruptIndexError, OffsetIndex
from klamm_broker.log.segment.segment_files import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from klamm_broker.log.segment.time_index import NO_TIMESTAMP_MS, TimeIndex, latest_timestamp_ms
from klamm_broker.log.segment.transaction_index import TransactionIndex

SEARCH_BYTES = 1024 * 1024
"""The bytes that are searched at once for the next batch."""
_MAGIC_BYTE = bytes([MAGIC])

ReadBytes = Callable[[int, int], memoryview]
"""The type of `read(position, size_bytes)`. It returns these bytes of the `.log` file, or fewer at the end of the
file."""


class DamagedRange(NamedTuple):
    """A range of a `.log` file with damaged bytes. Ends are exclusive."""

    position: int
    end_position: int
    first_offset: int
    end_offset: int
    """The offset after the records that were in the range. They began at `first_offset`."""
    reason: str


class SegmentBounds(NamedTuple):
    """The properties of a sealed segment that the log knows without reading it."""

    base_offset: int
    end_offset: int
    """The base offset of the next segment."""
    size_bytes: int
    log_start_offset: int
    is_gapless: bool
    """True if the log was never compacted, so that every offset has a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentVerdict:
    """The damage that was found in a segment. `ranges` are in order and do not touch."""

    ranges: tuple[DamagedRange, ...] = ()
    indexes: Mapping[str, str]
    """The reason why each damaged index is unusable, by its suffix. If there are `ranges`, the offset index and the
    time index were not checked."""

    @property
    def is_sound(self) -> bool:
        return not self.ranges and not self.indexes


class BatchRules:
    """The rules that every batch of a segment must keep."""

    def __init__(self, bounds: SegmentBounds, epochs: Sequence[EpochEntry]) -> None:
        self._bounds = bounds
        self._epochs = epochs
        self._slot = 0

    def check_place(self, header: BatchHeader, expected_offset: int) -> None:
        """Checks the offsets and the leader epoch of a batch. Raises CorruptBatchError."""
        bounds = self._bounds
        if header.base_offset < expected_offset or header.next_offset > bounds.end_offset:
            raise CorruptBatchError(
                f"a batch has offsets {header.base_offset} to {header.last_offset}; expected {expected_offset} to"
                f" {bounds.end_offset - 1}"
            )
        epoch = self._epoch_at(header.base_offset)
        if epoch not in (NO_LEADER_EPOCH, header.partition_leader_epoch):
            raise CorruptBatchError(
                f"the batch at offset {header.base_offset} has leader epoch {header.partition_leader_epoch};"
                f" expected {epoch}"
            )

    def _epoch_at(self, offset: int) -> int:
        """Returns the leader epoch at an offset, or -1 before the log start, where it is unknown."""
        if offset < self._bounds.log_start_offset:
            return NO_LEADER_EPOCH
        # Offsets come in order, except those of damaged headers.
        epochs = self._epochs
        while self._slot and epochs[self._slot - 1].start_offset > offset:
            self._slot -= 1
        while self._slot < len(epochs) and epochs[self._slot].start_offset <= offset:
            self._slot += 1
        return epochs[self._slot - 1].epoch if self._slot else NO_LEADER_EPOCH


class IndexFiles(NamedTuple):
    """The contents of a segment's index files. None if a file does not exist."""

    offsets: bytes | None
    times: bytes | None
    transactions: bytes | None
    aborted_count: int = 0
    """The number of entries of the transaction index when it was written."""
    unindexed_bytes_max: int = 2**31
    """An offset index that has no entry for more than this many bytes has lost entries."""


def check_segment(
    read: ReadBytes,
    bounds: SegmentBounds,
    epochs: Sequence[EpochEntry],
    files: IndexFiles,
    *,
    on_batch: Callable[[BatchHeader], None] = lambda _: None,
) -> SegmentVerdict:
    """Checks a segment and returns the verdict. `epochs` are all epochs of the log. `on_batch` is called for each
    batch, and may wait or raise."""
    indexes = _Indexes(bounds, files)
    walk = _Walk(read, bounds, BatchRules(bounds, epochs))
    for position, header in walk:
        indexes.note(position, header)
        on_batch(header)
    ranges = tuple(walk.ranges)
    return SegmentVerdict(ranges=ranges, indexes=indexes.damaged(with_log=not ranges))


class _Walk:
    """Yields every batch that keeps the rules, and collects the damaged ranges between them."""

    def __init__(self, read: ReadBytes, bounds: SegmentBounds, rules: BatchRules) -> None:
        self._read = read
        self._bounds = bounds
        self._rules = rules
        self.ranges: list[DamagedRange] = []
        """The damaged ranges. The list is complete after the walk has ended."""
        self._expected = bounds.base_offset
        self._before: tuple[int, int] | None = None
        """The position and expected offset of the previous batch, if there was a gap before it."""

    def __iter__(self) -> Iterator[tuple[int, BatchHeader]]:
        position, size_bytes = 0, self._bounds.size_bytes
        while position < size_bytes:
            try:
                header = self._batch_at(position)
                if header.base_offset < self._expected and self._before is not None:
                    self._take_back(header)
                self._rules.check_place(header, self._expected)
            except CorruptBatchError as error:
                end = self._next_start(position)
                self._damaged(position, end, error.message)
                position = end
                continue
            if self.ranges and self.ranges[-1].end_position == position:
                self.ranges[-1] = self.ranges[-1]._replace(end_offset=header.base_offset)
            self._before = (position, self._expected) if header.base_offset > self._expected else None
            self._expected = header.next_offset
            yield position, header
            position += header.size_bytes
        ends_damaged = bool(self.ranges) and self.ranges[-1].end_position == size_bytes
        if self._expected < self._bounds.end_offset and self._bounds.is_gapless and not ends_damaged:
            reason = f"the file ends before offset {self._expected}"
            self._damaged(size_bytes, size_bytes, reason)

    def _batch_at(self, position: int) -> BatchHeader:
        header = read_header(self._read(position, HEADER_SIZE_BYTES))
        rest_bytes = self._bounds.size_bytes - position
        # A batch longer than the rest of the segment is torn, so that validate_batch raises.
        return validate_batch(self._read(position, min(header.size_bytes, rest_bytes)), allow_gaps=True)

    def _take_back(self, header: BatchHeader) -> None:
        """Marks the previous batch as damaged if this batch overlaps it and fits into the gap before it."""
        assert self._before is not None
        position, expected = self._before
        self._before = None
        if header.base_offset < expected:
            return
        passed = read_header(self._read(position, HEADER_SIZE_BYTES))
        self._expected = expected
        reason = (
            f"a batch has offsets {passed.base_offset} to {passed.last_offset}, but offset {header.base_offset} follows"
        )
        self._damaged(position, position + passed.size_bytes, reason)

    def _damaged(self, position: int, end_position: int, reason: str) -> None:
        """Adds a damaged range up to the next batch, or to the end of the segment. Joins it with a range that ends
        where it begins."""
        self._before = None
        found = DamagedRange(position, end_position, self._expected, self._bounds.end_offset, reason)
        if self.ranges and self.ranges[-1].end_position == position:
            found = self.ranges.pop()._replace(end_position=end_position, end_offset=found.end_offset)
        self.ranges.append(found)

    # After damage

    def _next_start(self, position: int) -> int:
        """Returns the position of the next batch that keeps the rules, or the end of the segment."""
        size_bytes = self._bounds.size_bytes
        try:
            declared = position + read_header(self._read(position, HEADER_SIZE_BYTES)).size_bytes
        except CorruptBatchError:
            declared = -1
        if declared == size_bytes or (0 <= declared < size_bytes and self._is_batch(declared)):
            return declared
        position += 1
        while position + HEADER_SIZE_BYTES <= size_bytes:
            chunk = bytes(self._read(position, min(SEARCH_BYTES, size_bytes - position)))
            found = self._search(chunk, position)
            if found is not None:
                return found
            if len(chunk) <= PREFIX_SIZE_BYTES:
                break  # the file is shorter than the segment
            position += len(chunk) - PREFIX_SIZE_BYTES
        return size_bytes

    def _search(self, chunk: bytes, chunk_position: int) -> int | None:
        """Returns the position of the next batch in a chunk, or None. A batch has the magic byte 16 bytes after its
        offset."""
        first, end = self._expected, self._bounds.end_offset
        at = chunk.find(_MAGIC_BYTE, PREFIX_SIZE_BYTES)
        while at >= 0:
            start = at - PREFIX_SIZE_BYTES
            if first <= int.from_bytes(chunk[start : start + 8], "big") < end:
                position = chunk_position + start
                if self._is_batch(position):
                    return position
            at = chunk.find(_MAGIC_BYTE, at + 1)
        return None

    def _is_batch(self, position: int) -> bool:
        try:
            self._rules.check_place(self._batch_at(position), self._expected)
        except CorruptBatchError:
            return False
        return True


class _Indexes:
    """Compares the entries of the three indexes with the batches that the walk passes."""

    def __init__(self, bounds: SegmentBounds, files: IndexFiles) -> None:
        self._reasons: dict[str, str] = {}
        base, max_bytes = bounds.base_offset, 2**31 - 1
        offsets = OffsetIndex(base, max_bytes)
        times = TimeIndex(base, max_bytes)
        transactions = TransactionIndex(base)
        try:
            offsets = OffsetIndex.decode(base, max_bytes, _there(files.offsets))
            _check_padding(files.offsets, len(offsets) * offset_index.ENTRY_SIZE_BYTES)
        except CorruptIndexError as error:
            self._reasons[INDEX_SUFFIX] = str(error)
        try:
            times = TimeIndex.decode(base, max_bytes, _there(files.times))
            _check_padding(files.times, len(times) * time_index.ENTRY_SIZE_BYTES)
        except CorruptIndexError as error:
            self._reasons[TIME_INDEX_SUFFIX] = str(error)
        try:
            transactions = TransactionIndex.decode(base, files.transactions or b"")
            if len(transactions) != files.aborted_count:
                raise CorruptIndexError(f"the file has {len(transactions)} entries; expected {files.aborted_count}")
        except CorruptIndexError as error:
            self._reasons[TRANSACTION_INDEX_SUFFIX] = str(error)
        self._offsets, self._times, self._transactions = offsets.entries(), times.entries(), transactions.entries()
        self._offset = next(self._offsets, None)
        self._time = next(self._times, None)
        self._transaction = next(self._transactions, None)
        self._unindexed_bytes_max = files.unindexed_bytes_max
        self._is_without_offsets = self._offset is None
        self._last_time = times.last
        self._latest_ms = NO_TIMESTAMP_MS
        self._passed_bytes = 0

    def note(self, position: int, header: BatchHeader) -> None:
        """Compares the next batch of the walk with the next index entries."""
        self._latest_ms = max(self._latest_ms, latest_timestamp_ms(header))
        if self._is_without_offsets and self._passed_bytes > self._unindexed_bytes_max:
            self._reasons.setdefault(INDEX_SUFFIX, "the index has no entries")
        self._passed_bytes += header.size_bytes
        while self._offset is not None and self._offset.position <= position:
            if self._offset.position != position or self._offset.offset != header.last_offset:
                self._wrong(INDEX_SUFFIX, self._offset)
            self._offset = next(self._offsets, None)
        while self._time is not None and self._time.offset <= header.last_offset:
            if self._time.offset < header.base_offset or self._time.timestamp_ms != header.max_timestamp_ms:
                self._wrong(TIME_INDEX_SUFFIX, self._time)
            self._time = next(self._times, None)
        while self._transaction is not None and self._transaction.last_offset <= header.last_offset:
            entry = self._transaction
            if not header.is_control or (entry.last_offset, entry.producer_id) != (
                header.last_offset,
                header.producer_id,
            ):
                self._wrong(TRANSACTION_INDEX_SUFFIX, entry)
            self._transaction = next(self._transactions, None)

    def damaged(self, *, with_log: bool) -> dict[str, str]:
        """Returns the first error of each damaged index, by its suffix. Without `with_log`, the entries are not
        compared with the log."""
        for suffix, entry in (
            (INDEX_SUFFIX, self._offset),
            (TIME_INDEX_SUFFIX, self._time),
            (TRANSACTION_INDEX_SUFFIX, self._transaction),
        ):
            if entry is not None:
                self._wrong(suffix, entry)
        if self._last_time.timestamp_ms < self._latest_ms:
            # This entry was written when the segment was sealed, and retention uses it.
            self._reasons.setdefault(TIME_INDEX_SUFFIX, f"the largest timestamp {self._latest_ms} is missing")
        if with_log:
            return self._reasons
        # Entries may name damaged batches. A rewrite builds the offset and time index again in any case.
        only = self._reasons.get(TRANSACTION_INDEX_SUFFIX, "")
        return {TRANSACTION_INDEX_SUFFIX: only} if only and not only.startswith(_NO_BATCH) else {}

    def _wrong(self, suffix: str, entry: object) -> None:
        self._reasons.setdefault(suffix, f"{_NO_BATCH} {entry}")


_NO_BATCH = "no batch of the log matches the entry"


def _there(data: bytes | None) -> bytes:
    if data is None:
        raise CorruptIndexError("the file is missing")
    return data


def _check_padding(data: bytes | None, entries_bytes: int) -> None:
    """Raises CorruptIndexError if the file is longer than its entries, because the index of a sealed segment has no
    padding."""
    if data is not None and len(data) != entries_bytes:
        raise CorruptIndexError(f"the file ends with {len(data) - entries_bytes} bytes of zeros")
