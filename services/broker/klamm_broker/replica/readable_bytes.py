"""How many bytes of a partition became readable: a fetch that waits compares two readings instead of reading again.

Bytes come with an append and are readable when the high watermark has passed it, or, for read_committed consumers, the
last stable offset. Pure.
"""

from __future__ import annotations

from collections import deque

APPENDS_MAX = 256
"""Appends told apart while they wait for the high watermark; from then on the last one stands for all that follow."""


class ReadableBytes:
    """`total` only grows. An append counts as a whole, when all of it is readable."""

    __slots__ = ("_waiting", "total")

    def __init__(self) -> None:
        self.total = 0
        self._waiting: deque[tuple[int, int]] = deque()

    def copy(self) -> ReadableBytes:
        """Another one that has counted the same until now."""
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
        """Everything before `end_offset` can be read."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= end_offset:
            self.total += waiting.popleft()[1]

    def forget(self) -> None:
        """Drops the appends that wait, because a new leader may cut them from the log."""
        self._waiting.clear()


class PartitionBytes:
    """What a replica's fetches wait for: `readable`, and for readers of committed records `stable`.

    `stable` is None until there is a transaction; until then both are the same."""

    __slots__ = ("readable", "stable")

    def __init__(self) -> None:
        self.readable = ReadableBytes()
        self.stable: ReadableBytes | None = None

    def total(self, *, read_committed: bool) -> int:
        """Bytes that became readable since the replica was opened."""
        return self.readable.total if self.stable is None or not read_committed else self.stable.total

    def note(self, end_offset: int, size_bytes: int, *, is_unstable: bool) -> None:
        """The log has grown. `is_unstable`: it has an undecided transaction, maybe since this append."""
        if self.stable is None and is_unstable:
            self.stable = self.readable.copy()
        self.readable.note(end_offset, size_bytes)
        if self.stable is not None:
            self.stable.note(end_offset, size_bytes)

    def forget(self) -> None:
        """Drops the appends that wait, because a new leader may cut them from the log."""
        self.readable.forget()
        self.stable = None
