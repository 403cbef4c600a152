"""Cleans one batch whose records are too many to be in memory. They are read in pieces, and read again to be written.

A record stays if no later record of its key is in the offset map, or if the map ends before the record. The map may end
inside of such a batch, so that its keys take no more memory than the map may use.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass

from klamm.records.compression import open_decompressed
from klamm.records.errors import InvalidRecordError
from klamm.records.header import HEADER_SIZE_BYTES, BatchHeader, Buffer
from klamm.records.keys import RecordKeys, parse_keys
from klamm.records.pieces import RecordPiece, part_header, record_pieces
from klamm.records.rewrite import PieceRetainer
from klamm_broker.log.cleaning.offset_map import OffsetMap


@dataclass(slots=True)
class _Survivors:
    """The numbers of the records that stay. `tombstones` are among `records`."""

    records: int = 0
    tombstones: int = 0


class LargeBatch:
    """One whole batch, whose checksum the caller has verified. All calls may raise CorruptBatchError and the exceptions
    of the pacer."""

    def __init__(self, header: BatchHeader, batch: memoryview, pace: Callable[[int], None]) -> None:
        self._header = header
        self._batch = batch
        self._pace = pace

    def map(self, offset_map: OffsetMap, start_offset: int) -> int:
        """Puts the keys of the records from `start_offset` on into the map, until it is full. Returns the offset after
        the last record that is in the map, or the offset after the batch if all are."""
        base_offset = self._header.base_offset
        with closing(self._pieces()) as pieces:
            for _, records in pieces:
                if offset_map.is_full:
                    return max(start_offset, base_offset + records.offset_deltas[0])
                first = bisect_left(records.offset_deltas, start_offset - base_offset)
                offset_map.put(records.keys[first:], [base_offset + delta for delta in records.offset_deltas[first:]])
        return self._header.next_offset

    def retained(self, offset_map: OffsetMap, *, end_offset: int, now_ms: int, new_horizon_ms: int) -> Buffer | None:
        """Returns the batch without superseded records and expired tombstones: the batch itself if all records stay, or
        None if none does. A first tombstone sets the delete horizon of the batch to `new_horizon_ms`."""
        header = self._header
        survivors = self._count(offset_map, end_offset)
        horizon_ms, is_expired = None, False
        if survivors.tombstones:
            if header.delete_horizon_ms is None:
                horizon_ms = new_horizon_ms
            else:
                is_expired = header.delete_horizon_ms <= now_ms
        count = survivors.records - survivors.tombstones * is_expired
        if not count:
            return None
        if count == header.record_count and horizon_ms is None:
            return self._batch
        retainer = PieceRetainer(header, delete_horizon_ms=horizon_ms)
        with closing(self._pieces()) as pieces:
            for piece, records in pieces:
                indexes = self._survivors(records, offset_map, end_offset)
                if is_expired:
                    indexes = [index for index in indexes if not records.is_tombstone(index)]
                retainer.add(piece, records, indexes)
        return retainer.finish()

    def _count(self, offset_map: OffsetMap, end_offset: int) -> _Survivors:
        found = _Survivors()
        with closing(self._pieces()) as pieces:
            for _, records in pieces:
                indexes = self._survivors(records, offset_map, end_offset)
                found.records += len(indexes)
                found.tombstones += sum([records.is_tombstone(index) for index in indexes])
        return found

    def _survivors(self, records: RecordKeys, offset_map: OffsetMap, end_offset: int) -> list[int]:
        offsets = [self._header.base_offset + delta for delta in records.offset_deltas]
        latest = offset_map.are_latest(records.keys, offsets)
        return [index for index, offset in enumerate(offsets) if latest[index] or offset >= end_offset]

    def _pieces(self) -> Generator[tuple[RecordPiece, RecordKeys], None, None]:
        header = self._header
        last_offset_delta = -1
        section = self._batch[HEADER_SIZE_BYTES:]
        with open_decompressed(header.compression, section, max_bytes=sys.maxsize) as data:
            for piece in record_pieces(header, data, with_keys=True):
                records = parse_keys(part_header(header, piece), piece.data)
                if records.offset_deltas[0] <= last_offset_delta:
                    raise InvalidRecordError(
                        f"offset delta {records.offset_deltas[0]} of the batch at offset {header.base_offset} follows"
                        f" {last_offset_delta}"
                    )
                last_offset_delta = records.offset_deltas[-1]
                yield piece, records
                self._pace(0)
