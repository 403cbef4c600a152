"""A thread for work on single records that would take the event loop too long.

Such work has one thread, because Python runs one thread at a time anyway. The work begins and ends in the order in
which it was handed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class RecordThread:
    """One thread and its queue. The owner calls `close` when no more work comes."""

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix=name)

    def begin(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Hands `work` over and returns its future result. `work` uses nothing that the event loop may change."""
        return asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Waits until the current work has ended, and drops the work behind it."""
        self._threads.shutdown(wait=True, cancel_futures=True)
