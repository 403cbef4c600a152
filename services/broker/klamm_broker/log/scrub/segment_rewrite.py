"""Writes a damaged segment again beside the old one, with batches of another replica in the damaged ranges.

The undamaged batches are copied unchanged. For each damaged range, the caller fetches the records that an in-sync
replica has for its offsets. These records are used only if

- each batch keeps all rules that a batch of this log has to keep, its checksum first;
- the batches fill the range exactly, because the batches behind it keep their positions. Only at the end of a log that
  was never compacted may they be longer, because the file lost its end;
- in a log that was never compacted, no offset is missing. There replicas have the same bytes.

Compaction runs on each replica by itself, so one may have dropped a tombstone that another still needs to hide an older
record. In a log that was ever compacted, a batch is used only if it is the same batch as the damaged one. That is the
case if its checksum is the one in the damaged header, or the one of the damaged bytes. Other batches are refused, and
the damage stays.

If the replica has the same bytes, they were never damaged, and there is nothing to write.

A worker thread runs the rewrite. The event loop puts the segment into the log (`segment_swap.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from klamm.checksum import crc32c
from klamm.errors import KlammError
from klamm.records.errors import CorruptBatchError
from klamm.records.header import (
    ATTRIBUTES_POSITION,
    CRC,
    CRC_POSITION,
    HEADER_SIZE_BYTES,
    BatchHeader,
    read_header,
    validate_batch,
)
from klamm_broker.log.files.cold_file import ColdFile
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.scrub.segment_check import BatchRules, DamagedRange, SegmentBounds
from klamm_broker.log.segment.record_set import AppendedBatch
from klamm_broker.log.segment.segment import Segment
from klamm_broker.log.segment.segment_files import CLEANED_SUFFIX
from klamm_broker.log.segment.segment_swap import make_durable
from klamm_broker.log.segment.time_index import latest_timestamp_ms
from klamm_broker.log.segment.transaction_index import TransactionIndex
from klamm_server.runtime.disk import Disk

_WRITE_BYTES = 1024 * 1024


class ReplicaRefused(KlammError):
    """Raised if another replica's records cannot replace the damaged bytes. The text says why."""


class Rewritten(NamedTuple):
    """The result of a rewrite."""

    segment: Segment
    """The new segment, on disk with the suffix `.cleaned`, not open."""
    changed_bytes: int
    """The number of bytes that have changed, 0 if the replica has the same bytes."""


class SegmentRewrite:
    """The rewrite of one damaged segment. The caller calls `open`, then for each range `begin_range`, `take` until it
    returns None, and `end_range`, then `finish`.

    Instead of `finish`, or after an exception, it calls `discard`. The calls raise OSError, ReplicaRefused,
    CorruptBatchError and the exceptions of the pacer."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        file: ColdFile,
        bounds: SegmentBounds,
        rules: BatchRules,
        *,
        config: LogConfig,
        modified_ms: int,
        transactions: bytes,
        pace: Callable[[int], None],
    ) -> None:
        """`file` is the damaged file, which the rewrite closes. `modified_ms` is the file's modification time.
        `transactions` is the content of the segment's transaction index, which must be sound."""
        self._disk = disk
        self._file = file
        self._read = file.read
        self._bounds = bounds
        self._rules = rules
        self._modified_ms = modified_ms
        self._transactions = transactions
        self._pace = pace
        self._segment = Segment(
            disk,
            directory,
            bounds.base_offset,
            config=config,
            created_ms=modified_ms,
            roll_jitter_ms=0,
            file_suffix=CLEANED_SUFFIX,
        )
        self._range: DamagedRange | None = None
        self._position = 0
        """The position in the old file, in bytes."""
        self._next_offset = bounds.base_offset
        self._taken_bytes = 0
        self._has_gap = False
        self._changed_bytes = 0
        self._buffers: list[memoryview] = []
        self._batches: list[AppendedBatch] = []
        self._buffered_bytes = 0

    def open(self) -> None:
        self._segment.create()

    def discard(self) -> None:
        """Closes the old file and removes the new one."""
        self._file.close()
        self._segment.delete()

    # Ranges, one after another

    def begin_range(self, damaged: DamagedRange) -> int:
        """Copies the batches before the range. Returns the first offset to fetch from the replica."""
        self._copy_to(damaged.position)
        self._range = damaged
        self._taken_bytes = 0
        self._has_gap = False
        self._next_offset = damaged.first_offset
        return damaged.first_offset

    def take(self, records: memoryview) -> int | None:
        """Adds the whole batches of a fetch. Returns the next offset to fetch, or None if the range is full."""
        damaged = self._in_range
        position = 0
        while position < len(records):
            try:
                header = validate_batch(records, position, allow_gaps=True)
            except CorruptBatchError as error:
                raise ReplicaRefused(f"the replica's bytes are damaged too: {error.message}") from error
            if header.base_offset >= damaged.end_offset:
                return None
            self._take_batch(header, records[position : position + header.size_bytes])
            position += header.size_bytes
        return self._next_offset if self._next_offset < damaged.end_offset else None

    def _take_batch(self, header: BatchHeader, batch: memoryview) -> None:
        damaged = self._in_range
        room_bytes = damaged.end_position - damaged.position - self._taken_bytes
        if header.size_bytes > room_bytes and not self._may_grow:
            raise ReplicaRefused(
                f"the batch at offset {header.base_offset} has {header.size_bytes} bytes, but this broker had at most"
                f" {room_bytes}: the replica was compacted differently"
            )
        if header.base_offset < self._next_offset:
            raise ReplicaRefused(
                f"a batch starts at offset {header.base_offset}; expected {self._next_offset} or later"
            )
        own = self._read(damaged.position + self._taken_bytes, min(header.size_bytes, max(0, room_bytes)))
        if own != batch:
            self._check_replacement(header, own)
            self._changed_bytes += _count_differing(own, batch)
        self._has_gap |= header.base_offset > self._next_offset
        self._taken_bytes += header.size_bytes
        self._next_offset = header.next_offset
        self._write(header, batch)

    def _check_replacement(self, header: BatchHeader, own: memoryview) -> None:
        try:
            self._rules.check_place(header, self._next_offset)
        except CorruptBatchError as error:
            raise ReplicaRefused(f"a batch does not belong to the damaged range: {error.message}") from error
        if not self._bounds.is_gapless and not _is_same_batch(header, own):
            raise ReplicaRefused(
                f"the batch at offset {header.base_offset} may differ from the lost batch, because the log is compacted"
            )

    def end_range(self) -> None:
        """Ends the range. Raises ReplicaRefused if the replica's records do not fill it exactly."""
        damaged = self._in_range
        size_bytes = damaged.end_position - damaged.position
        if self._taken_bytes < size_bytes or (self._taken_bytes > size_bytes and not self._may_grow):
            raise ReplicaRefused(
                f"the replica has {self._taken_bytes} bytes for offsets {damaged.first_offset} to"
                f" {damaged.end_offset - 1}, but this broker had {size_bytes}"
            )
        is_whole = not self._has_gap and self._next_offset == damaged.end_offset
        if self._bounds.is_gapless and self._changed_bytes and not is_whole:
            raise ReplicaRefused(
                f"the replica lacks some offsets of {damaged.first_offset} to {damaged.end_offset - 1} that this"
                " broker had"
            )
        self._position = damaged.end_position
        self._range = None

    def finish(self) -> Rewritten:
        """Copies the rest and syncs the new segment. The caller must have called `end_range` for the last range."""
        assert self._range is None, self._range
        self._copy_to(self._bounds.size_bytes)
        self._flush()
        for entry in TransactionIndex.decode(self._bounds.base_offset, self._transactions).entries():
            self._segment.aborted.append(entry)
        make_durable(self._disk, self._segment, modified_ms=self._modified_ms)
        self._segment.release()
        self._file.close()
        return Rewritten(self._segment, self._changed_bytes)

    @property
    def _in_range(self) -> DamagedRange:
        assert self._range is not None, "no range was begun"
        return self._range

    @property
    def _may_grow(self) -> bool:
        return self._bounds.is_gapless and self._in_range.end_position == self._bounds.size_bytes

    # Writing

    def _copy_to(self, end_position: int) -> None:
        """Copies the undamaged batches up to a position. Checks them again, because the disk may have damaged more of
        them since."""
        while self._position < end_position:
            size_bytes = read_header(self._read(self._position, HEADER_SIZE_BYTES)).size_bytes
            batch = self._read(self._position, min(size_bytes, end_position - self._position))
            header = validate_batch(batch, allow_gaps=True)
            self._rules.check_place(header, self._next_offset)
            self._next_offset = header.next_offset
            self._write(header, batch)
            self._position += size_bytes

    def _write(self, header: BatchHeader, batch: memoryview) -> None:
        self._buffers.append(batch)
        self._batches.append(AppendedBatch(header.last_offset, latest_timestamp_ms(header), header.size_bytes))
        self._buffered_bytes += header.size_bytes
        if self._buffered_bytes >= _WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._batches:
            return
        self._segment.append(self._buffers, self._batches, self._buffered_bytes)
        self._pace(self._buffered_bytes)
        self._buffers, self._batches, self._buffered_bytes = [], [], 0


def _is_same_batch(header: BatchHeader, own: memoryview) -> bool:
    """Returns True if the damaged bytes `own` were the batch with this header. Damage rarely hits both the checksum and
    the other bytes."""
    if len(own) != header.size_bytes:
        return False
    return header.crc in (CRC.unpack_from(own, CRC_POSITION)[0], crc32c(own[ATTRIBUTES_POSITION:]))


def _count_differing(own: memoryview, other: memoryview) -> int:
    """Returns the number of bytes of `other` that differ from the byte of `own` at the same position."""
    common = len(own)
    difference = int.from_bytes(own, "big") ^ int.from_bytes(other[:common], "big")
    return len(other) - difference.to_bytes(common, "big").count(0)
