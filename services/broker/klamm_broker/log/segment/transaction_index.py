"""The transaction index of one segment: the aborted transactions whose markers it holds.

An entry is 34 bytes, big-endian (Kafka's `TransactionIndex` and `AbortedTxn`, version 0):

    at  bytes  field
     0      2  version = 0
     2      8  producer_id
    10      8  first_offset: of its first record in the log, maybe in an earlier segment
    18      8  last_offset: of its marker
    26      8  last_stable_offset: when the marker was written; no transaction that began before it was still open

Entries are in order of their markers, and so are the last stable offsets: a reader of the offsets below `end` need not
look further than the first entry that was written when all of them were stable. A segment without an entry has no file.
Unlike the other indexes it cannot be made again from the segment alone (`producer_recovery.py`).
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
    """One entry."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The transaction index in memory. Invariants: last offsets grow strictly, last stable offsets do not shrink;
    `written` <= length."""

    __slots__ = ("_first_offsets", "_last_offsets", "_producer_ids", "_stable_offsets", "base_offset", "written_count")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._producer_ids = array("q")
        self._first_offsets = array("q")
        self._last_offsets = array("q")
        self._stable_offsets = array("q")
        self.written_count = 0
        """How many entries the file already has."""

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
        """All entries, in order."""
        return (self._entry(slot) for slot in range(len(self)))

    def append(self, entry: AbortedTransaction) -> None:
        """Adds the transaction whose marker comes after all before it."""
        assert self._may_follow(entry), f"{entry} in the index of {self.base_offset}"
        self._producer_ids.append(entry.producer_id)
        self._first_offsets.append(entry.first_offset)
        self._last_offsets.append(entry.last_offset)
        self._stable_offsets.append(entry.last_stable_offset)

    def between(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """The transactions that wrote, or whose marker is, in `[start_offset, end_offset)`; maybe a few that end after
        it only. And whether that is all: no later segment knows more of them."""
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
        """The encoded entries that are not in the file yet; they belong at `written_count * 34`."""
        return b"".join(_ENTRY.pack(VERSION, *self._entry(slot)) for slot in range(self.written_count, len(self)))
