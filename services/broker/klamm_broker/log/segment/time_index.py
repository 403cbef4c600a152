"""The time index of one segment: it finds an offset at or before the first record with a timestamp or a later one.

An entry is 12 bytes, big-endian (Kafka's `TimeIndex`):

    timestamp i64 | relative offset i32

`timestamp` is the largest timestamp so far, and `offset` is the last offset of the first batch that has it. Both grow
strictly. An entry is added with an offset index entry if the largest timestamp has grown, and once more when the
segment is rolled or closed. Retention by time uses the last entry of a sealed segment.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from klamm.records.header import BatchHeader
from klamm_broker.log.segment.offset_index import RELATIVE_OFFSET_MAX, CorruptIndexError, strictly_growing

ENTRY_SIZE_BYTES = 12
NO_TIMESTAMP_MS = -1


class TimestampOffset(NamedTuple):
    """A timestamp, and the last offset of the first batch that reaches it."""

    timestamp_ms: int
    offset: int


def latest_timestamp_ms(header: BatchHeader) -> int:
    """Returns the largest timestamp of a batch's records, or -1 if compaction has emptied the batch."""
    return header.max_timestamp_ms if header.record_count else NO_TIMESTAMP_MS


class TimeIndex:
    """The time index in memory. It has the invariants of `OffsetIndex`. One slot stays free for the entry of a roll."""

    __slots__ = ("_entry_count_max", "_offsets", "_timestamps", "base_offset", "written_count")

    def __init__(self, base_offset: int, max_bytes: int) -> None:
        self.base_offset = base_offset
        self._entry_count_max = max_bytes // ENTRY_SIZE_BYTES
        self._timestamps = array("q")
        self._offsets = array("I")
        self.written_count = 0
        """The number of entries that are in the file."""

    @classmethod
    def decode(cls, base_offset: int, max_bytes: int, data: bytes) -> TimeIndex:
        """Decodes a file's content. Trailing zeros of a preallocated file are not entries.

        Raises CorruptIndexError if the size is not a multiple of an entry or the entries do not grow."""
        if len(data) % ENTRY_SIZE_BYTES:
            raise CorruptIndexError(f"the index has {len(data)} bytes; expected a multiple of {ENTRY_SIZE_BYTES}")
        index = cls(base_offset, max_bytes)
        words = array("I")
        words.frombytes(data)
        if sys.byteorder == "little":
            words.byteswap()
        high, low, index._offsets = words[0::3], words[1::3], words[2::3]
        # No indexed timestamp is negative, so the upper half is below 2**31.
        if any(word > RELATIVE_OFFSET_MAX for word in high):
            raise CorruptIndexError("a timestamp is negative")
        index._timestamps = array("q", [h << 32 | w for h, w in zip(high, low, strict=True)])
        index._drop_padding()
        index._check()
        index.written_count = len(index)
        return index

    def _drop_padding(self) -> None:
        count = len(self._offsets)
        while count and not self._timestamps[count - 1] and not self._offsets[count - 1]:
            count -= 1
        del self._offsets[count:], self._timestamps[count:]

    def _check(self) -> None:
        for values in (self._offsets, self._timestamps):
            listed = values.tolist()
            if not strictly_growing(listed):
                raise CorruptIndexError("the entries are not in ascending order")
        if self._offsets and self._offsets[-1] > RELATIVE_OFFSET_MAX:
            raise CorruptIndexError(f"relative offset {self._offsets[-1]} is too large")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        return len(self._offsets) >= self._entry_count_max - 1

    @property
    def last(self) -> TimestampOffset:
        """The last entry, or (-1, base offset) without entries."""
        return self._entry(len(self._offsets) - 1)

    def _entry(self, slot: int) -> TimestampOffset:
        if slot < 0:
            return TimestampOffset(NO_TIMESTAMP_MS, self.base_offset)
        return TimestampOffset(self._timestamps[slot], self.base_offset + self._offsets[slot])

    def entries(self) -> Iterator[TimestampOffset]:
        """Yields all entries in order."""
        return (self._entry(slot) for slot in range(len(self._offsets)))

    def append_if_later(self, timestamp_ms: int, offset: int) -> None:
        """Adds an entry if `timestamp_ms` is larger than that of the last entry."""
        if timestamp_ms <= (self._timestamps[-1] if self._timestamps else NO_TIMESTAMP_MS):
            return
        assert offset > self.last.offset or not self._offsets, f"offset {offset} after {self.last.offset}"
        assert len(self._offsets) < self._entry_count_max, f"time index of {self.base_offset} is full"
        self._timestamps.append(timestamp_ms)
        self._offsets.append(offset - self.base_offset)

    def lookup(self, timestamp_ms: int) -> TimestampOffset:
        """Returns the entry with the largest timestamp <= `timestamp_ms`, or (-1, base offset)."""
        return self._entry(bisect_right(self._timestamps, timestamp_ms) - 1)

    def truncate_to(self, offset: int) -> None:
        """Drops the entries whose offset is `offset` or larger."""
        relative = offset - self.base_offset
        keep = bisect_left(self._offsets, relative) if relative > 0 else 0
        del self._offsets[keep:], self._timestamps[keep:]
        self.written_count = min(self.written_count, keep)

    def unwritten(self) -> bytes:
        """Returns the encoded entries that are not in the file yet. They belong at file position `written_count *
        12`."""
        start = self.written_count
        pairs = zip(self._timestamps[start:], self._offsets[start:], strict=True)
        return b"".join(_ENTRY.pack(timestamp, offset) for timestamp, offset in pairs)


_ENTRY = struct.Struct(">qI")
