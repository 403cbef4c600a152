"""A boolean on one event loop that tasks can wait for."""

from __future__ import annotations

import asyncio


class Switch:
    """A switch, which is off at first."""

    def __init__(self) -> None:
        self._is_on = False
        self._turned = asyncio.Event()

    @property
    def is_on(self) -> bool:
        return self._is_on

    def turn(self, on: bool) -> None:
        """Turns the switch on or off, and wakes the callers that wait for this."""
        if on is not self._is_on:
            self._is_on = on
            turned, self._turned = self._turned, asyncio.Event()
            turned.set()

    async def wait(self, on: bool) -> None:
        """Waits until the switch is on, or off. It may have changed again before the caller runs."""
        while self._is_on is not on:
            await self._turned.wait()
