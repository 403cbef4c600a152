"""Waits for metadata: a client that requested a change waits until this broker's metadata contain the change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from klamm_server.metadata.image import MetadataImage


class MetadataWaiters:
    """Calls that wait for metadata. `image` returns the image that requests are answered from. The owner calls `wake`
    after each new image."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image
        self._advanced = asyncio.Event()

    def wake(self) -> None:
        """Wakes all waiting calls, so that they check the image again."""
        advanced, self._advanced = self._advanced, asyncio.Event()
        advanced.set()

    async def reach(self, end_index: int, *, timeout_ms: int) -> bool:
        """Waits until the image has every record below `end_index`. Returns False after the timeout."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self._image().end_index < end_index:
                    await self._advanced.wait()
        except TimeoutError:
            return False
        return True
