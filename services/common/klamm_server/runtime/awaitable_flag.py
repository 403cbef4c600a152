"""A boolean on one event loop that tasks can wait for."""

from __future__ import annotations

import asyncio


class AwaitableFlag:
    """A flag, which is not set at first."""

    def __init__(self) -> None:
        self._is_on = False
        self._turned = asyncio.Event()

    @property
    def is_on(self) -> bool:
        return self._is_on

    def set(self, on: bool) -> None:
        """Sets or clears the flag, and wakes the callers that wait for this."""
        if on is not self._is_on:
            self._is_on = on
            turned, self._turned = self._turned, asyncio.Event()
            turned.set()

    async def wait(self, on: bool) -> None:
        """Waits until the flag is set, or not set. It may have changed again before the caller runs."""
        while self._is_on is not on:
            await self._turned.wait()
