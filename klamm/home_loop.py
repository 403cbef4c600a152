"""Checks that an asynchronous client is used on the event loop on which it was created.

On another loop, a call would wait for ever, because the client's tasks run on the first loop."""

from __future__ import annotations

import asyncio

from klamm.errors import IllegalStateError


class HomeLoop:
    """The event loop of one client. Create it on this loop."""

    def __init__(self, client: str) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()

    def check(self) -> None:
        """Raises IllegalStateError on another event loop, and without one."""
        if asyncio._get_running_loop() is not self._loop:
            state = "is closed" if self._loop.is_closed() else "is another one"
            raise IllegalStateError(
                f"the event loop on which this {self._client} was created {state}; expected calls on that loop."
                f" Create a client for each event loop"
            )
