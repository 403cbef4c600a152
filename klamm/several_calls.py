"""Runs several calls at the same time, and leaves none of them running after an error.

`asyncio.gather` raises the first error while the other calls go on. The caller may then retry or close its client, and
the old calls still change the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

from klamm.errors import raise_first

T = TypeVar("T")


async def until_first_error(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Returns the results of the calls, in their order. It is for reads, whose cancellation changes nothing.

    Raises the first error. Before that, cancels the calls that are still running and waits until they have ended."""
    # `calls` may raise while it makes a call. Then no call has begun.
    tasks = [asyncio.ensure_future(call) for call in list(calls)]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until_all_ended(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Returns the results of the calls, in their order. It is for changes, because a cancelled change may be made or
    not.

    After all calls have ended, raises the error of the first call that failed, with notes about the others."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    raise_first([outcome for outcome in outcomes if isinstance(outcome, BaseException)])
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
