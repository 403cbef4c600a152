"""Interrupts a function or a coroutine at a random time, as Ctrl-C, a signal's handler or a cancellation does."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import signal
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any

from tests.support.waiting import patience


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Ends the process with the stacks of all threads if the block does not end. A hanging client cannot be helped by
    an exception."""
    faulthandler.dump_traceback_later(4 * patience(), exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def press_ctrl_c_after(delay_s: float, operation: Callable[[], object]) -> bool:
    """Runs the operation and raises KeyboardInterrupt in it after `delay_s`. Returns whether it was interrupted."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        with handled_after(delay_s, interrupt):
            operation()
    except KeyboardInterrupt:
        return True
    return False


@contextlib.contextmanager
def handled_after(delay_s: float, handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Lets a signal's handler run in the middle of the block, after `delay_s`, unless the block ends earlier."""
    is_over = False

    def handle(number: int, frame: FrameType | None) -> None:
        if not is_over:
            handler(number, frame)

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, delay_s)
        yield
    finally:
        is_over = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


async def cancel_after(delay_s: float, operation: Coroutine[Any, Any, object]) -> bool:
    """Runs the operation in a task and cancels it after `delay_s`. Returns whether it was cancelled."""
    task = asyncio.create_task(operation)
    timer = asyncio.get_running_loop().call_later(delay_s, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        return True
    finally:
        timer.cancel()
    return False
