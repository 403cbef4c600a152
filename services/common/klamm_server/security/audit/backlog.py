"""Lines that wait for one output, of BACKLOG_MAX_BYTES at most: one that finds no room is dropped, and counted.

`is_overrun` from then on, until half of the room is free again.

Invariant: `held_bytes` is what the lines take, and at most the bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

BACKLOG_MAX_BYTES: Final = 16 * 1024**2
_OVERHEAD_BYTES: Final = 50
"""The memory that a line takes besides its characters."""


class Backlog:
    """Waiting lines. Read them with `first`, and remove them with `take_out` after they were written."""

    def __init__(self, on_dropped: Callable[[int], None], max_bytes: int = BACKLOG_MAX_BYTES) -> None:
        """`on_dropped` is called with the number of events in a dropped line."""
        self._on_dropped = on_dropped
        self._max_bytes = max_bytes
        self._lines: deque[bytes] = deque()
        self.held_bytes = 0
        self.is_overrun = False

    def __len__(self) -> int:
        """Returns the number of lines."""
        return len(self._lines)

    def add(self, line: bytes, count: int) -> None:
        """Adds a line that reports `count` events."""
        size = len(line) + _OVERHEAD_BYTES
        if self.held_bytes + size > self._max_bytes:
            self.is_overrun = True
            self._on_dropped(count)
            return
        self._lines.append(line)
        self.held_bytes += size

    def first(self, max_bytes: int) -> list[bytes]:
        """Returns the oldest lines without removing them: as many as fit into `max_bytes`, but at least one if there is
        any."""
        return list(islice(self._lines, self._fitting(max_bytes)))

    def take_out(self, line_count: int) -> None:
        """Removes the oldest lines after they were written."""
        for _ in range(line_count):
            self.held_bytes -= len(self._lines.popleft()) + _OVERHEAD_BYTES
        if self.held_bytes <= self._max_bytes // 2:
            self.is_overrun = False

    def _fitting(self, max_bytes: int) -> int:
        number = size = 0
        for line in self._sizes():
            size += line
            if number and size > max_bytes:
                break
            number += 1
        return number

    def _sizes(self) -> Iterator[int]:
        return map(len, self._lines)
