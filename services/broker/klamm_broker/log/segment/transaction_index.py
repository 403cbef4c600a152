"""The transaction index of one segment: the aborted transactions whose markers it holds.

An entry is 34 bytes, big-endian (Kafka's `TransactionIndex` and `AbortedTxn`, version 0):

    at  bytes  field
     0      2  version = 0
     2      8  producer_id
    10      8  first_offset: of its first record in the log, maybe in an earlier segment
    18      8  last_offset: of its marker
    26      8  last_stable_offset: when the marker was written; no transaction that began before it was still open

Entries are in the order of their markers, and so are the last stable offsets. A reader of the offsets below `end` may
stop at the first entry that was written when all these offsets were stable. A segment without entries has no file.
Unlike the other indexes, it cannot be rebuilt from the segment alone (`producer_recovery.py`).
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from klamm_broker.log.segment.offset_index import CorruptIndexError

ENTRY_SIZE_BYTES = 34
VERSION = 0
_ENTRY = struct.Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """An aborted transaction: one entry of the index."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The transaction index in memory. Invariants: last offsets grow strictly, last stable offsets do not shrink, and
    `written_count` <= length."""

    __slots__ = ("_first_offsets", "_last_offsets", "_producer_ids", "_stable_offsets", "base_offset", "written_count")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._producer_ids = array("q")
        self._first_offsets = array("q")
        self._last_offsets = array("q")
        self._stable_offsets = array("q")
        self.written_count = 0
        """The number of entries that are in the file."""

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> TransactionIndex:
        """Decodes a file's content. Raises CorruptIndexError unless it is a sequence of whole entries of version 0."""
        if len(data) % ENTRY_SIZE_BYTES:
            raise CorruptIndexError(f"the index has {len(data)} bytes; expected a multiple of {ENTRY_SIZE_BYTES}")
        index = cls(base_offset)
        for version, *fields in _ENTRY.iter_unpack(data):
            if version != VERSION:
                raise CorruptIndexError(f"an entry has version {version}; expected {VERSION}")
            entry = AbortedTransaction(*fields)
            if not index._may_follow(entry):
                raise CorruptIndexError(f"{entry} cannot follow {index._entry(-1) if len(index) else 'nothing'}")
            index.append(entry)
        index.written_count = len(index)
        return index

    def _may_follow(self, entry: AbortedTransaction) -> bool:
        if not 0 <= entry.first_offset < entry.last_offset or entry.last_offset < self.base_offset:
            return False
        if not len(self):
            return True
        return entry.last_offset > self._last_offsets[-1] and entry.last_stable_offset >= self._stable_offsets[-1]

    def __len__(self) -> int:
        return len(self._last_offsets)

    def _entry(self, slot: int) -> AbortedTransaction:
        return AbortedTransaction(
            self._producer_ids[slot], self._first_offsets[slot], self._last_offsets[slot], self._stable_offsets[slot]
        )

    def entries(self) -> Iterator[AbortedTransaction]:
        """Yields all entries in order."""
        return (self._entry(slot) for slot in range(len(self)))

    def append(self, entry: AbortedTransaction) -> None:
        """Adds a transaction. Its marker must come after those of all earlier entries."""
        assert self._may_follow(entry), f"{entry} in the index of {self.base_offset}"
        self._producer_ids.append(entry.producer_id)
        self._first_offsets.append(entry.first_offset)
        self._last_offsets.append(entry.last_offset)
        self._stable_offsets.append(entry.last_stable_offset)

    def between(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Returns the transactions that wrote in `[start_offset, end_offset)`, or whose marker is there, and whether
        the list is complete.

        The list may have a few that only end after the range. If it is complete, later segments have no more of them.
        """
        first = bisect_left(self._last_offsets, start_offset)
        last = bisect_left(self._stable_offsets, end_offset)
        slots = range(first, min(last + 1, len(self)))
        found = [self._entry(slot) for slot in slots if self._first_offsets[slot] < end_offset]
        return found, last < len(self)

    def truncate_to(self, offset: int) -> None:
        """Drops the entries whose marker is at `offset` or after."""
        keep = bisect_left(self._last_offsets, offset)
        for column in (self._producer_ids, self._first_offsets, self._last_offsets, self._stable_offsets):
            del column[keep:]
        self.written_count = min(self.written_count, keep)

    def unwritten(self) -> bytes:
        """Returns the encoded entries that are not in the file yet. They belong at file position `written_count *
        34`."""
        return b"".join(_ENTRY.pack(VERSION, *self._entry(slot)) for slot in range(self.written_count, len(self)))
