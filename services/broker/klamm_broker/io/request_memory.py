"""Bounds the bytes of all requests and answers under way (`queued.max.request.bytes`).

A unary produce that does not fit is refused, because its bytes are here already; a stream waits, so that its
flow control slows the sender down; a fetch is given what room there is. One owner, the event loop: no locks.
"""

from __future__ import annotations

import asyncio
from collections import deque

from klamm.errors import EXCEPTIONS, ErrorCode

_ThrottlingQuotaExceededError = EXCEPTIONS[ErrorCode.THROTTLING_QUOTA_EXCEEDED]


class RequestMemory:
    """A pool of `max_bytes`. A request that takes bytes gives back as many, once."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    @property
    def free_bytes(self) -> int:
        """Never negative: an answer may exceed the pool by its one batch too large for it (KIP-74)."""
        return max(0, self._max_bytes - self._held_bytes)

    @property
    def is_waited_for(self) -> bool:
        """Whether a request waits for room."""
        return any(not granted.cancelled() for _, granted in self._waiting)

    def take(self, size_bytes: int) -> None:
        """Raises ThrottlingQuotaExceededError when the pool has no such room."""
        if size_bytes > self.free_bytes:
            raise _ThrottlingQuotaExceededError(
                f"requests use {self._held_bytes} bytes of memory; {size_bytes} more would exceed"
                f" queued.max.request.bytes={self._max_bytes}"
            )
        self._held_bytes += size_bytes

    def take_anyway(self, size_bytes: int) -> None:
        """Takes bytes for an answer that was read within `free_bytes`, apart from its one obligatory batch, or after
        `has_room`."""
        self._held_bytes += size_bytes

    def has_room(self, size_bytes: int) -> bool:
        """Whether `wait_take` would not wait."""
        return not self._waiting and self._admits(size_bytes)

    async def wait_take(self, size_bytes: int) -> None:
        """Takes the bytes as soon as there is room for them, first come first served."""
        if self.has_room(size_bytes):
            self._held_bytes += size_bytes
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.give_back(size_bytes)
            raise

    def give_back(self, size_bytes: int) -> None:
        assert 0 <= size_bytes <= self._held_bytes, (size_bytes, self._held_bytes)
        self._held_bytes -= size_bytes
        while self._waiting:
            wanted_bytes, granted = self._waiting[0]
            if granted.cancelled():
                self._waiting.popleft()
                continue
            if not self._admits(wanted_bytes):
                return
            self._waiting.popleft()
            self._held_bytes += wanted_bytes
            granted.set_result(None)

    def _admits(self, size_bytes: int) -> bool:
        # An idle pool lets anything in, or a request larger than the pool would wait for ever.
        return self._held_bytes + size_bytes <= self._max_bytes or not self._held_bytes
