"""Counts the bytes of a partition that became readable, so that a waiting fetch compares two counts instead of reading
again.

The bytes of an append become readable when the high watermark passes it. For read_committed consumers, they become
readable when the last stable offset passes it. Pure.
"""

from __future__ import annotations

from collections import deque

APPENDS_MAX = 256
"""The most appends that are counted separately while they wait for the high watermark. Further appends are added to the
last one."""


class ReadableBytes:
    """A count of readable bytes. `total` only grows. An append counts when all of it is readable."""

    __slots__ = ("_waiting", "total")

    def __init__(self) -> None:
        self.total = 0
        self._waiting: deque[tuple[int, int]] = deque()

    def copy(self) -> ReadableBytes:
        """Returns a copy with the same counts."""
        other = ReadableBytes()
        other.total = self.total
        other._waiting = self._waiting.copy()
        return other

    def note(self, end_offset: int, size_bytes: int) -> None:
        """Notes an append of `size_bytes` bytes, after which the log ends at `end_offset`."""
        waiting = self._waiting
        if len(waiting) >= APPENDS_MAX:
            size_bytes += waiting.pop()[1]
        waiting.append((end_offset, size_bytes))

    def reach(self, end_offset: int) -> None:
        """Counts all appends that end at or before `end_offset` as readable."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= end_offset:
            self.total += waiting.popleft()[1]

    def forget(self) -> None:
        """Drops the appends that wait, because a new leader may cut them from the log."""
        self._waiting.clear()


class PartitionBytes:
    """The counts that a replica's fetches wait for: `readable`, and `stable` for read_committed consumers.

    `stable` is None until the first transaction. Until then both counts are equal."""

    __slots__ = ("readable", "stable")

    def __init__(self) -> None:
        self.readable = ReadableBytes()
        self.stable: ReadableBytes | None = None

    def total(self, *, read_committed: bool) -> int:
        """Returns the bytes that became readable since the replica was opened."""
        return self.readable.total if self.stable is None or not read_committed else self.stable.total

    def note(self, end_offset: int, size_bytes: int, *, is_unstable: bool) -> None:
        """Notes an append. `is_unstable` is True if the log has an undecided transaction, perhaps since this append."""
        if self.stable is None and is_unstable:
            self.stable = self.readable.copy()
        self.readable.note(end_offset, size_bytes)
        if self.stable is not None:
            self.stable.note(end_offset, size_bytes)

    def forget(self) -> None:
        """Drops the appends that wait, because a new leader may cut them from the log."""
        self.readable.forget()
        self.stable = None
