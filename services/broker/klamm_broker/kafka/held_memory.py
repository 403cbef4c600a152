"""What one connection holds of the memory that all requests share."""

from __future__ import annotations

from klamm_broker.io.request_memory import RequestMemory


class HeldMemory:
    """`frame_bytes` are held for a frame that is large or waits, others for answers that the client does not take."""

    __slots__ = ("_memory", "_unsent_bytes", "frame_bytes")

    def __init__(self, memory: RequestMemory) -> None:
        self._memory = memory
        self.frame_bytes = self._unsent_bytes = 0

    def hold_frame(self, size: int) -> None:
        if not self.frame_bytes:
            self._memory.take_anyway(size)
            self.frame_bytes = size

    async def wait_hold_frame(self, size: int) -> None:
        """When there is memory for it."""
        await self._memory.wait_take(size)
        self.frame_bytes = size

    def release_frame(self) -> None:
        if self.frame_bytes:
            self._memory.give_back(self.frame_bytes)
            self.frame_bytes = 0

    def hold_unsent(self, size: int) -> None:
        """Answers that wait in the socket's buffer."""
        self._memory.take_anyway(size)
        self._unsent_bytes += size

    def release_unsent(self) -> None:
        """The client has taken them, or is gone."""
        self._memory.give_back(self._unsent_bytes)
        self._unsent_bytes = 0
