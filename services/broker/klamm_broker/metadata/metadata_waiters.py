"""Waiting for metadata: a client that has had something changed waits until this broker answers from an image that
shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from klamm_server.metadata.image import MetadataImage


class MetadataWaiters:
    """`image` gives what requests are answered from; `wake` after each new one."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image
        self._advanced = asyncio.Event()

    def wake(self) -> None:
        """There may be a newer image."""
        advanced, self._advanced = self._advanced, asyncio.Event()
        advanced.set()

    async def reach(self, end_index: int, *, timeout_ms: int) -> bool:
        """Whether the image has every record below `end_index` within that time; returns as soon as it has."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self._image().end_index < end_index:
                    await self._advanced.wait()
        except TimeoutError:
            return False
        return True
