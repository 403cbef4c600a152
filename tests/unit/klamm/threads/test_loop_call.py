"""Tests that calls across threads end cleanly wherever Ctrl-C interrupts them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading

import pytest

from klamm.threads import caller_thread, loop_call, loop_thread
from klamm.threads.caller_thread import CallerThread
from klamm.threads.loop_thread import LoopThread
from tests.support.interrupts import interrupted_everywhere


class Work:
    """A coroutine function that takes a few turns of the loop, and one more turn to end."""

    def __init__(self) -> None:
        self.begun = 0
        self.running = 0

    async def run(self) -> str:
        self.begun += 1
        self.running += 1
        try:
            await self._take_turns()
            return "done"
        finally:
            self.running -= 1

    async def _take_turns(self) -> None:
        try:
            await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0)

    def check_nothing_is_left(self) -> None:
        assert self.running == 0


@pytest.mark.parametrize("caller", [LoopThread.shared(), CallerThread(LoopThread.shared())])
def test_an_interrupt_at_any_line_of_a_call_leaves_no_pending_work(caller: LoopThread | CallerThread) -> None:
    work = Work()

    def run() -> None:
        assert caller.run(work.run) == "done"

    interrupts = interrupted_everywhere(run, loop_call, loop_thread, caller_thread, check=work.check_nothing_is_left)

    assert 1 < work.begun < interrupts + 1
    assert caller.run(work.run) == "done"


@pytest.mark.parametrize("caller", [LoopThread.shared(), CallerThread(LoopThread.shared())])
def test_an_interrupt_within_the_standard_library_is_raised_as_it_is(caller: LoopThread | CallerThread) -> None:
    """The modules of Python that a waiting thread calls must raise the interrupt, and no error of a lock."""
    work = Work()

    def run() -> None:
        assert caller.run(work.run) == "done"

    modules = (loop_call, loop_thread, caller_thread, threading, contextlib, concurrent.futures._base)
    assert interrupted_everywhere(run, *modules, check=work.check_nothing_is_left, is_signal=True) > 1
