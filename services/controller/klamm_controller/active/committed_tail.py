"""The newest committed entries in memory. Watchers of the metadata get their entries from here.

All watchers share these entries, and each watcher has only an index into them. So one setting bounds the memory,
however many watchers are slow. A watcher that falls behind the oldest entry must begin again from a snapshot.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from klamm.wire.v1.metadata_pb2 import MetadataBatch


class CommittedTail:
    """Consecutive committed entries that end at `end_index`. Holds about `max_bytes` at most, but always at least one
    entry.

    Invariant: entry n+1 begins where entry n ends."""

    def __init__(self, max_bytes: int, end_index: int) -> None:
        self.end_index = end_index
        self._max_bytes = max_bytes
        self._size_bytes = 0
        self._entries: list[MetadataBatch] = []
        self._sizes: list[int] = []

    def extend(self, entries: Sequence[MetadataBatch]) -> None:
        """Appends `entries`, which have just committed and begin at `end_index`."""
        for entry in entries:
            assert entry.base_index == self.end_index, (entry.base_index, self.end_index)
            size_bytes = entry.ByteSize()
            self._entries.append(entry)
            self._sizes.append(size_bytes)
            self._size_bytes += size_bytes
            self.end_index = entry.end_index
        self._trim()

    def restart(self, end_index: int) -> None:
        """Drops all entries and continues at `end_index`, because the entries before it came as a snapshot."""
        self.end_index = end_index
        self._size_bytes = 0
        self._entries.clear()
        self._sizes.clear()

    def after(self, index: int) -> list[MetadataBatch] | None:
        """Returns the committed entries from `index` on, or None if no entry begins at `index` or it was dropped."""
        if index == self.end_index:
            return []
        position = bisect_left(self._entries, index, key=lambda entry: entry.base_index)
        if position == len(self._entries) or self._entries[position].base_index != index:
            return None
        return self._entries[position:]

    def _trim(self) -> None:
        """Drops the oldest entries once they exceed `max_bytes`, down to half of it, so that trimming is rare and
        cheap."""
        if self._size_bytes <= self._max_bytes:
            return
        dropped = 0
        while self._size_bytes > self._max_bytes // 2 and dropped < len(self._entries) - 1:
            self._size_bytes -= self._sizes[dropped]
            dropped += 1
        del self._entries[:dropped], self._sizes[:dropped]
