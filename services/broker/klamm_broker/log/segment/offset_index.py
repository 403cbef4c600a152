"""The offset index of one segment: it finds a position in the `.log` file at or before an offset.

An entry is 8 bytes, big-endian (Kafka's `OffsetIndex`):

    relative offset i32 | position i32

It has the *last* offset of a batch and the position at which that batch starts. Both grow strictly. There
is about one entry per `index.interval.bytes` of log, so a lookup ends with a short forward scan.

Entries are in two arrays in memory. There, bisect is several times faster than on a mapped file and costs no
page fault, and a file that shrinks cannot raise SIGBUS. The size is bounded by `segment.index.bytes`;
sealed segments keep theirs only while in use (`segment_pool.py`). Entries appended since the last write to
the file are `unwritten`. After a crash, the tail of an index can always be rebuilt from the log.
"""

from __future__ import annotations

import operator
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

ENTRY_SIZE_BYTES = 8
RELATIVE_OFFSET_MAX = 2**31 - 1


class CorruptIndexError(Exception):
    """Raised if an index does not fit its format or its log. It is then rebuilt from the log."""


class IndexEntry(NamedTuple):
    """The last offset of a batch and the position where the batch starts."""

    offset: int
    position: int


def strictly_growing(values: list[int]) -> bool:
    """Returns True if each value is larger than the previous one. It runs at C speed, because an index may have a
    million entries."""
    return all(map(operator.lt, values, values[1:]))


class OffsetIndex:
    """The offset index in memory. Invariants: both arrays have equal length and grow strictly; `written_count` <=
    length."""

    __slots__ = ("_entry_count_max", "_offsets", "_positions", "base_offset", "written_count")

    def __init__(self, base_offset: int, max_bytes: int) -> None:
        self.base_offset = base_offset
        self._entry_count_max = max_bytes // ENTRY_SIZE_BYTES
        self._offsets = array("I")
        self._positions = array("I")
        self.written_count = 0
        """The number of entries that are in the file."""

    @classmethod
    def decode(cls, base_offset: int, max_bytes: int, data: bytes) -> OffsetIndex:
        """Decodes a file's content. Trailing zeros of a preallocated file are not entries.

        Raises CorruptIndexError if the size is not a multiple of an entry or the entries do not grow."""
        index = cls(base_offset, max_bytes)
        if len(data) % ENTRY_SIZE_BYTES:
            raise CorruptIndexError(f"the index has {len(data)} bytes; expected a multiple of {ENTRY_SIZE_BYTES}")
        words = array("I")
        words.frombytes(data)
        if sys.byteorder == "little":
            words.byteswap()
        index._offsets, index._positions = words[0::2], words[1::2]
        index._drop_padding()
        index._check()
        index.written_count = len(index)
        return index

    def _drop_padding(self) -> None:
        # A batch at position 0 is never indexed, because the first entry comes after the first interval.
        count = len(self._positions)
        while count and self._positions[count - 1] == 0:
            count -= 1
        del self._offsets[count:], self._positions[count:]

    def _check(self) -> None:
        for values in (self._offsets, self._positions):
            listed = values.tolist()
            if not strictly_growing(listed) or (listed and listed[-1] > RELATIVE_OFFSET_MAX):
                raise CorruptIndexError("the entries are not in ascending order, or one is negative")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        return len(self._offsets) >= self._entry_count_max

    @property
    def last(self) -> IndexEntry:
        """The last entry, or (base offset, 0) without entries."""
        return self._entry(len(self._offsets) - 1)

    def _entry(self, slot: int) -> IndexEntry:
        if slot < 0:
            return IndexEntry(self.base_offset, 0)
        return IndexEntry(self.base_offset + self._offsets[slot], self._positions[slot])

    def entries(self) -> Iterator[IndexEntry]:
        """Yields all entries in order."""
        return (self._entry(slot) for slot in range(len(self._offsets)))

    def append(self, offset: int, position: int) -> None:
        """Adds an entry. Its offset and position must be larger than all before."""
        offsets, positions, relative = self._offsets, self._positions, offset - self.base_offset
        assert len(offsets) < self._entry_count_max, f"offset index of {self.base_offset} is full"
        assert not offsets or relative > offsets[-1], f"offset {offset} after {self.last.offset}"
        assert position > (positions[-1] if positions else 0), f"position {position} after {self.last.position}"
        offsets.append(relative)
        positions.append(position)

    def lookup(self, offset: int) -> IndexEntry:
        """Returns the entry with the largest offset <= `offset`, or (base offset, 0). A scan can start there."""
        if offset < self.base_offset:
            return self._entry(-1)
        relative = min(offset - self.base_offset, RELATIVE_OFFSET_MAX)
        return self._entry(bisect_right(self._offsets, relative) - 1)

    def floor_position(self, position: int) -> int:
        """Returns the largest indexed batch start <= `position`, or 0."""
        slot = bisect_right(self._positions, position) - 1
        return self._positions[slot] if slot >= 0 else 0

    def offset_from(self, position: int) -> int | None:
        """Returns the last offset of the first indexed batch that starts at or after `position`, or None."""
        slot = bisect_left(self._positions, position)
        return self._entry(slot).offset if slot < len(self._positions) else None

    def truncate_to(self, offset: int) -> None:
        """Drops the entries whose offset is `offset` or larger."""
        relative = offset - self.base_offset
        keep = bisect_right(self._offsets, relative - 1) if relative > 0 else 0
        del self._offsets[keep:], self._positions[keep:]
        self.written_count = min(self.written_count, keep)

    def unwritten(self) -> bytes:
        """Returns the encoded entries that are not in the file yet. They belong at file position `written_count *
        8`."""
        start = self.written_count
        pairs = zip(self._offsets[start:], self._positions[start:], strict=True)
        return b"".join(_ENTRY.pack(offset, position) for offset, position in pairs)


_ENTRY = struct.Struct(">II")
