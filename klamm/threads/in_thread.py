"""Runs blocking work of an event loop in another thread, also while the process ends."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls `function` in a thread of the loop's executor and returns its result, like `asyncio.to_thread`.

    When functions of `atexit` run, executors accept no work any more. Then this calls `function` on the loop."""
    call = functools.partial(function, *args, **kwargs)
    try:
        called = asyncio.get_running_loop().run_in_executor(None, call)
    except RuntimeError:
        return call()
    return await called
