"""Producer ids to give to transactional producers: a stock that the shards of one coordinator share."""

from __future__ import annotations

from collections import deque

STOCK_MIN = 100
"""Below that a further block is wanted."""


class ProducerIdStock:
    """`take` is called in steps of shards, which cannot wait; the shell fills it with ids from the controller."""

    def __init__(self) -> None:
        self._blocks: deque[range] = deque()

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    @property
    def is_low(self) -> bool:
        """Another block should be asked for."""
        return len(self) < STOCK_MIN

    def add(self, block: range) -> None:
        """A block that nobody else ever gets."""
        self._blocks.append(block)

    def take(self) -> int | None:
        """An id that nobody else ever gets; None: there is none at the moment."""
        while self._blocks:
            block = self._blocks.popleft()
            if block:
                self._blocks.appendleft(block[1:])
                return block[0]
        return None
