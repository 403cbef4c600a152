"""Does long work in slices, so that a request with many items does not keep the event loop from all other work.

The work is a generator that yields after every few items. Its first slice runs at once. So work that is short needs no
task, and is done in the turn of the loop in which it began. All other slices of all long work together run one in each
turn, first come, first served. A hundred long requests delay a short one as much as a single long request does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, TypeVar

from klamm.process import PROCESS

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

SLICE_MAX_S: Final = 0.005
"""After this time, the work pauses at its next `yield`."""
ITEMS_PER_TURN: Final = 500
"""The number of items after which `map_in_slices` lets the event loop run, if each item takes some microseconds."""


class SlicedWork:
    """Runs long work of one server. Callers call `begin`, and if that returns None, `finish`."""

    def __init__(self, clock_s: Callable[[], float] | None = None) -> None:
        self._clock_s = clock_s or PROCESS.get().elapsed_s
        self._turn = asyncio.Lock()
        """Held by the work that may run the next slice. It wakes those that wait in their order."""

    def begin(self, work: Generator[None, Any, ResultT]) -> ResultT | None:
        """Runs the next slice of the work. Returns its result, or None if there is more to do."""
        end_s = self._clock_s() + SLICE_MAX_S
        try:
            next(work)
            while self._clock_s() < end_s:
                next(work)
        except StopIteration as done:
            result: ResultT = done.value
            return result
        return None

    async def finish(self, work: Generator[None, Any, ResultT]) -> ResultT:
        """Runs the rest of the work. Returns its result, which must not be None."""
        while True:
            async with self._turn:
                await asyncio.sleep(0)
                result = self.begin(work)
            if result is not None:
                return result


async def map_in_slices(
    do: Callable[[ItemT], ResultT], items: Iterable[ItemT], *, per_turn: int = ITEMS_PER_TURN
) -> list[ResultT]:
    """Returns the result of `do` for each item, and lets the event loop run after every `per_turn` items."""
    results = []
    for number, item in enumerate(items, 1):
        results.append(do(item))
        if not number % per_turn:
            await asyncio.sleep(0)
    return results
