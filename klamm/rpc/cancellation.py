"""Whether the caller of an RPC is to end."""

from __future__ import annotations

import asyncio


def is_cancelled() -> bool:
    """Whether somebody wants the current task to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def raise_if_cancelled() -> None:
    """Raises CancelledError if the current task was cancelled."""
    if is_cancelled():
        raise asyncio.CancelledError
