"""Waits for other processes, threads or tasks: a test asks again and again until the answer is true.

`patience` says how long anything may take. `wait_until` blocks; `until` lets the event loop run meanwhile. Both return
the first answer that is true, and fail with a story when none comes in time. `settle` is for tasks of this event loop
that wait for nothing outside.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")
Story = str | Callable[[], object]
"""The text of an error. A function is called when the time is over, and returns the actual state."""

_PATIENCE_S: Final = 60.0
_MOST_PATIENCE_S: Final = 180.0
PAUSE_S: Final = 0.02
LOOP_PAUSE_S: Final = 0.002
FREE_TURNS: Final = 1_000
"""The number of turns of the event loop that pass without a pause, so that a state of only a few turns is seen."""
SETTLE_TURNS: Final = 10


def patience() -> float:
    """Returns the seconds that a test waits for an event: 60 on an idle machine, up to 180 on a busy one. It is the
    only measure of time in tests of real processes. A test that waits for less only measures how busy the machine is. A
    limit on speed belongs into a benchmark."""
    load_per_core = os.getloadavg()[0] / (os.cpu_count() or 1)
    return min(max(_PATIENCE_S, _PATIENCE_S * load_per_core), _MOST_PATIENCE_S)


def wait_until(
    ask: Callable[[], T],
    story: Story = "",
    *,
    timeout_s: float | None = None,
    pause_s: float = PAUSE_S,
    between: Callable[[], object] | None = None,
) -> T:
    """Returns the first answer of `ask` that is true. Raises AssertionError with `story` after `timeout_s`.

    Without `timeout_s`, it is `patience()`. If `between` is set, it is called between two questions instead of a pause,
    for example to poll a consumer."""
    timeout_s = patience() if timeout_s is None else timeout_s
    deadline_s = time.monotonic() + timeout_s
    while not (answer := ask()):
        if time.monotonic() > deadline_s:
            raise AssertionError(_told(story, timeout_s, answer))
        if between is None:
            time.sleep(pause_s)
        else:
            between()
    return answer


async def until(
    ask: Callable[[], Any],
    story: Story = "",
    *,
    timeout_s: float | None = None,
    pause_s: float = LOOP_PAUSE_S,
) -> Any:
    """Returns the first answer of `ask` that is true. `ask` may be a coroutine function. Raises AssertionError with
    `story` after `timeout_s`, even while it awaits an answer. Without `timeout_s`, it is `patience()`."""
    timeout_s = patience() if timeout_s is None else timeout_s
    answer: Any = None
    try:
        async with asyncio.timeout(timeout_s) as limit:
            for turn in itertools.count():
                asked = ask()
                is_awaited = inspect.isawaitable(asked)
                answer = await asked if is_awaited else asked
                if answer:
                    return answer
                await asyncio.sleep(pause_s if is_awaited or turn >= FREE_TURNS else 0)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise AssertionError(_told(story, timeout_s, answer)) from error
    raise AssertionError("unreachable")


async def settle(turns: int = SETTLE_TURNS) -> None:
    """Lets every task run until it waits for something outside. Each task may take `turns` steps."""
    for _ in range(turns):
        await asyncio.sleep(0)


def _told(story: Story, timeout_s: float, answer: object) -> str:
    told = story() if callable(story) else story
    return f"{told or answer!r} after {timeout_s:g} s"
