"""Something that is so or not, and that can be waited for, on one event loop."""

from __future__ import annotations

import asyncio


class Switch:
    """Off to begin with."""

    def __init__(self) -> None:
        self._is_on = False
        self._turned = asyncio.Event()

    @property
    def is_on(self) -> bool:
        return self._is_on

    def turn(self, on: bool) -> None:
        """Turns it on or off, and wakes the callers that wait for that."""
        if on is not self._is_on:
            self._is_on = on
            turned, self._turned = self._turned, asyncio.Event()
            turned.set()

    async def wait(self, on: bool) -> None:
        """Waits until it is on, or off; it may have turned again before the caller runs."""
        while self._is_on is not on:
            await self._turned.wait()
