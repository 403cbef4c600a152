"""Bounds the bytes of all requests and answers in progress (`queued.max.request.bytes`).

A unary produce that does not fit is refused, because its bytes are already in memory. A stream waits for room, so that
its flow control slows the sender down. A fetch returns only as much as there is room for. Only the event loop uses the
pool, so it needs no locks.
"""

from __future__ import annotations

import asyncio
from collections import deque

from klamm.errors import EXCEPTIONS, ErrorCode

_ThrottlingQuotaExceededError = EXCEPTIONS[ErrorCode.THROTTLING_QUOTA_EXCEEDED]


class RequestMemory:
    """A pool of `max_bytes`. A request that takes bytes must give back the same number once."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    @property
    def free_bytes(self) -> int:
        """The free bytes of the pool, never negative. Use may exceed the pool, because an answer may have one batch of
        any size (KIP-74)."""
        return max(0, self._max_bytes - self._held_bytes)

    @property
    def is_waited_for(self) -> bool:
        """True while a request waits for room."""
        return any(not granted.cancelled() for _, granted in self._waiting)

    def take(self, size_bytes: int) -> None:
        """Takes the bytes. Raises ThrottlingQuotaExceededError if the pool has no room for them."""
        if size_bytes > self.free_bytes:
            raise _ThrottlingQuotaExceededError(
                f"requests use {self._held_bytes} bytes of memory; {size_bytes} more would exceed"
                f" queued.max.request.bytes={self._max_bytes}"
            )
        self._held_bytes += size_bytes

    def take_anyway(self, size_bytes: int) -> None:
        """Takes bytes without a check, for an answer that was read within `free_bytes` (its first batch may be larger),
        or after `fits`."""
        self._held_bytes += size_bytes

    def fits(self, size_bytes: int) -> bool:
        """Returns True if `wait_take` would return without waiting."""
        return not self._waiting and self._admits(size_bytes)

    async def wait_take(self, size_bytes: int) -> None:
        """Takes the bytes as soon as there is room for them. Requests get room in the order of their calls."""
        if self.fits(size_bytes):
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
        # An idle pool admits every request, because a request larger than the pool would otherwise wait for ever.
        return self._held_bytes + size_bytes <= self._max_bytes or not self._held_bytes
