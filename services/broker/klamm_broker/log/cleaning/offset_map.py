"""The last offset of each key in the part of a log that is being compacted, in bounded memory.

Kafka's `SkimpyOffsetMap` keeps MD5 digests in an open-addressed buffer. In Python, a digest per record would cost more
than all the rest. So this map is a dict of the keys themselves, which also cannot confuse two keys. It needs more
memory: an entry counts `ENTRY_BYTES` and its key, and 24 bytes in Kafka.

No call here may hold the interpreter's lock for long, because the map is used beside the event loop. So work on the
whole map is done in slices, not with one call of C code.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import islice

ENTRY_BYTES = 176
"""The memory of one entry without the key's own bytes: the bytes and int objects, the growing dict, and the offset
among the survivors. Measured by tests/unit/klamm_broker/log/cleaning/test_offset_map.py."""
_SLICE = 4096


class OffsetMap:
    """The last offset of each key. The caller calls `put` and checks `is_full` between batches, then calls `seal`, then
    looks keys up."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._latest: dict[bytes | None, int] = {}
        self._survivors: array[int] = array("q")
        self.used_bytes = 0

    def __len__(self) -> int:
        return len(self._latest)

    @property
    def is_full(self) -> bool:
        return self.used_bytes >= self._max_bytes

    def put(self, keys: Sequence[bytes | None], offsets: Sequence[int]) -> None:
        """Adds the records of one batch. Their offsets must be larger than all earlier ones. Records without a key are
        ignored."""
        latest = self._latest
        before = len(latest)
        for start in range(0, len(keys), _SLICE):
            latest.update(zip(keys[start : start + _SLICE], offsets[start : start + _SLICE], strict=True))
        latest.pop(None, None)
        added = len(latest) - before
        # A dict keeps insertion order, so new keys are at its end.
        self.used_bytes += added * ENTRY_BYTES + sum([len(key) for key in islice(reversed(latest), added) if key])

    def seal(self) -> None:
        """Ends the insertion of keys, and sorts the offsets for lookups."""
        values = iter(self._latest.values())
        chunks = []
        while chunk := sorted(islice(values, _SLICE)):
            chunks.append(array("q", chunk))
        for offset in heapq.merge(*chunks):
            self._survivors.append(offset)

    def survivors(self, base_offset: int, last_offset: int) -> Sequence[int]:
        """Returns the offsets in this range, ascending, that are the last of their key."""
        low = bisect_left(self._survivors, base_offset)
        return self._survivors[low : bisect_right(self._survivors, last_offset, low)]

    def are_latest(self, keys: Sequence[bytes | None], offsets: Sequence[int]) -> list[bool]:
        """Returns for each record whether it is the last one of its key. It is False for a record without a key."""
        latest = self._latest.get
        return [key is not None and latest(key, -1) <= offset for key, offset in zip(keys, offsets, strict=True)]

    def clear(self) -> None:
        """Frees the memory, in slices so that the event loop is not blocked."""
        latest = self._latest
        while latest:
            for _ in range(min(_SLICE, len(latest))):
                latest.popitem()
        self._survivors = array("q")
        self.used_bytes = 0
