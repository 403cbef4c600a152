"""Asks about each item of a request, a few at once.

A request may name very many groups or transactions. A call to a coordinator takes more memory than the name of a group
on the wire. So the number of calls that one request has at the same time is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeVar

from klamm.several_calls import until_first_error

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

AT_ONCE: Final = 32
"""The most items of one request that are asked about at the same time."""


async def gather_bounded(
    ask: Callable[[ItemT], Awaitable[ResultT]], items: Collection[ItemT], at_once: int = AT_ONCE
) -> list[ResultT]:
    """Returns the result of `ask` for each item, in the order of the items. Asks about at most `at_once` items at the
    same time.

    Raises the first error of `ask`. Before that, cancels the calls that are still running and waits until they have
    ended."""
    results: dict[int, ResultT] = {}
    numbered = enumerate(items)

    async def work() -> None:
        for number, item in numbered:
            results[number] = await ask(item)
            # `ask` may return without waiting, for example if the caller may not see the group.
            await asyncio.sleep(0)

    await until_first_error(work() for _ in range(min(at_once, len(items))))
    return [results[number] for number in range(len(items))]
