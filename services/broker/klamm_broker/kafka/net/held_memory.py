"""The share of one connection in the memory that all requests use."""

from __future__ import annotations

from klamm_broker.io.request_memory import RequestMemory


class HeldMemory:
    """The memory of one connection. `frame_bytes` are held for a large or waiting frame, others for answers that the
    client has not received."""

    __slots__ = ("_memory", "_unsent_bytes", "frame_bytes")

    def __init__(self, memory: RequestMemory) -> None:
        self._memory = memory
        self.frame_bytes = self._unsent_bytes = 0

    def hold_frame(self, size: int) -> None:
        if not self.frame_bytes:
            self._memory.take_anyway(size)
            self.frame_bytes = size

    async def wait_hold_frame(self, size: int) -> None:
        """Takes memory for a frame, as soon as there is room."""
        await self._memory.wait_take(size)
        self.frame_bytes = size

    def release_frame(self) -> None:
        if self.frame_bytes:
            self._memory.give_back(self.frame_bytes)
            self.frame_bytes = 0

    def hold_unsent(self, size: int) -> None:
        """Takes memory for answers that wait in the socket's buffer."""
        self._memory.take_anyway(size)
        self._unsent_bytes += size

    def release_unsent(self) -> None:
        """Gives back the memory of answers, because the client has received them or is gone."""
        self._memory.give_back(self._unsent_bytes)
        self._unsent_bytes = 0
