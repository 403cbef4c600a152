"""Checks of passwords and tokens, which take CPU: in threads, few at a time, and no more waiting than will have their
turn soon."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from klamm.errors import KlammError
from klamm.process import PROCESS

THREADS: Final = 2
WAITING_MAX: Final = 100

FoundT = TypeVar("FoundT")


class ChecksBusyError(KlammError):
    """Too many checks are waiting. The login ends without an answer."""


class Checks:
    """Runs checks in threads. Call `close` at the end."""

    def __init__(self, kind: str, *, threads: int = THREADS, waiting_max: int = WAITING_MAX) -> None:
        """Makes the threads. `kind` names the checks: "password"."""
        self._kind = kind
        self._under_way_max = threads + waiting_max
        self._under_way = 0
        self._pool = PROCESS.get().make_executor(threads, f"check-{kind}")

    async def run(self, check: Callable[[], FoundT]) -> FoundT:
        """Runs the check on a thread and returns its result. Raises ChecksBusyError if too many checks are pending."""
        if self._under_way >= self._under_way_max:
            raise ChecksBusyError(f"{self._under_way} {self._kind} checks are pending: try again later")
        self._under_way += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, check)
        finally:
            self._under_way -= 1

    def close(self) -> None:
        """Cancels the checks that have not begun. Does not wait for the running ones."""
        self._pool.shutdown(wait=False, cancel_futures=True)
