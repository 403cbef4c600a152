"""Retries of an action until it succeeds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from klamm.errors import KlammError
from klamm.retry import Backoff
from klamm.rpc.cancellation import raise_if_cancelled

T = TypeVar("T")


class Retries:
    """Counts failures in a row, and pauses between attempts. The pauses grow as `backoff` defines."""

    def __init__(self, backoff: Backoff, rng: random.Random) -> None:
        self.failures = 0
        """The number of failures in a row."""
        self._backoff = backoff
        self._rng = rng

    def reset(self) -> None:
        """Notes a success."""
        self.failures = 0

    def failed(self, why: str = "") -> float:
        """Notes a failure. Returns the wait before the next attempt, in seconds."""
        self.failures += 1
        self.on_failure(why)
        return self._backoff.delay_ms(self.failures, self._rng) / 1000

    async def pause(self, why: str = "") -> None:
        """Waits after a failure. Raises CancelledError if the caller was cancelled."""
        raise_if_cancelled()
        await asyncio.sleep(self.failed(why))

    def on_failure(self, why: str) -> None:
        """Called for each failure; a subclass may count or log it."""


async def retrying(attempt: Callable[[], Awaitable[T]], retries: Retries) -> T:
    """Calls `attempt` until it raises no retriable KlammError, and returns its result. Other errors are raised."""
    while True:
        try:
            result = await attempt()
        except KlammError as error:
            if not error.retriable:
                raise
            await retries.pause(str(error))
        else:
            retries.reset()
            return result
