"""Remembers the positions of batches that are likely to be read next: the last appended batch, and those after the last
reads.

Readers continue where they stopped, and a waiting fetch wants the next append. The remembered positions save the search
in the index and the log. An offset stands for the first batch that ends at or after it. Pure.
"""

from __future__ import annotations

STARTS_MAX = 4
"""The number of positions that are kept for one segment. This is enough for a few readers at different places."""


class BatchStarts:
    """The newest `STARTS_MAX` positions by offset."""

    __slots__ = ("_positions",)

    def __init__(self) -> None:
        self._positions: dict[int, int] = {}

    def find(self, offset: int) -> int | None:
        """Returns the position of the batch for `offset`, or None if it is unknown."""
        return self._positions.get(offset)

    def note(self, offset: int, position: int) -> None:
        """Remembers that the batch for `offset` starts, or will start, at `position`."""
        positions = self._positions
        if offset not in positions and len(positions) >= STARTS_MAX:
            del positions[next(iter(positions))]
        positions[offset] = position

    def forget(self) -> None:
        """Forgets all positions, because the log has changed."""
        self._positions.clear()
