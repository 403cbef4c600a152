"""Where the batches start that are likely to be read next: the one appended last, and those behind what was just read.

Readers go on where they stopped, and a fetch that waits for records wants the next append. Both are found here
without a look at index or log. An offset stands for the first batch that ends at or after it. Pure.
"""

from __future__ import annotations

STARTS_MAX = 4
"""How many positions are kept for one segment: a few readers, each at a place of its own."""


class BatchStarts:
    """Positions by offset, the newest `STARTS_MAX` of them."""

    __slots__ = ("_positions",)

    def __init__(self) -> None:
        self._positions: dict[int, int] = {}

    def find(self, offset: int) -> int | None:
        """The position, if it is known."""
        return self._positions.get(offset)

    def note(self, offset: int, position: int) -> None:
        """The batch to be read for `offset` starts, or will start, at `position`."""
        positions = self._positions
        if offset not in positions and len(positions) >= STARTS_MAX:
            del positions[next(iter(positions))]
        positions[offset] = position

    def forget(self) -> None:
        """The log is another one from here on."""
        self._positions.clear()
