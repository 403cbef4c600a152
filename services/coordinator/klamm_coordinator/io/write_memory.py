"""The memory of the writes of all shards that wait for their append (`coordinator.pending.writes.max.bytes`)."""

from __future__ import annotations


class WriteMemory:
    """Counts the bytes of waiting writes. It is full when they have `max_bytes` or more, so that one write always fits,
    whatever its size is."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.held_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.held_bytes >= self._max_bytes

    def take(self, size_bytes: int) -> None:
        self.held_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        assert size_bytes <= self.held_bytes, (size_bytes, self.held_bytes)
        self.held_bytes -= size_bytes
