"""Checks whether the caller of an RPC was cancelled."""

from __future__ import annotations

import asyncio


def is_cancelled() -> bool:
    """Returns whether the current task was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def raise_if_cancelled() -> None:
    """Raises CancelledError if the current task was cancelled."""
    if is_cancelled():
        raise asyncio.CancelledError
