"""Ends one future when another ends, in the same order for all futures.

A task that awaits a future may take its first step after the future has ended. It may then overtake a task that waits
for an earlier future. A call-back that is added to a future before it can end has no such gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def follow(source: asyncio.Future[T], target: asyncio.Future[Any], on_result: Callable[[T], None]) -> None:
    """Calls `on_result` with the result of `source`. It ends `target`, or passes it on to another source.

    `target` gets the exceptions of `source` and of `on_result`. If `target` is cancelled, `source` is cancelled too,
    and `on_result` is not called. Results of sources that end one after another are handed over in this order, if
    `follow` is called for each in the turn of the event loop in which it begins."""

    def on_ended(source: asyncio.Future[T]) -> None:
        error = None if source.cancelled() else source.exception()
        if target.done():
            return
        if source.cancelled():
            target.cancel()
        elif error is not None:
            target.set_exception(error)
        else:
            hand_over(source.result())

    def hand_over(result: T) -> None:
        try:
            on_result(result)
        except Exception as error:  # noqa: BLE001 - the owner of the target handles it
            target.set_exception(error)

    source.add_done_callback(on_ended)
    target.add_done_callback(lambda _: source.cancel())
