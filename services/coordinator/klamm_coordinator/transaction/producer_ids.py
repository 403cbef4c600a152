"""Producer ids to give to transactional producers: a stock that the shards of one coordinator share."""

from __future__ import annotations

from collections import deque

STOCK_MIN = 100
"""The coordinator asks for another block when the stock has fewer ids than this."""


class ProducerIdPool:
    """The unused producer ids of a coordinator. A step of a shard cannot wait for an id, so the shell fetches ids from
    the controller in advance."""

    def __init__(self) -> None:
        self._blocks: deque[range] = deque()

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    @property
    def is_low(self) -> bool:
        """True if the coordinator should ask for another block."""
        return len(self) < STOCK_MIN

    def add(self, block: range) -> None:
        """Adds a block of ids that the controller has given to this coordinator only."""
        self._blocks.append(block)

    def take(self) -> int | None:
        """Removes and returns an id that no other producer gets. Returns None if the stock is empty."""
        while self._blocks:
            block = self._blocks.popleft()
            if block:
                self._blocks.appendleft(block[1:])
                return block[0]
        return None
