"""Tests that user code runs in the waiting thread."""

from __future__ import annotations

import asyncio
import threading

import pytest

from klamm.errors import IllegalStateError
from klamm.threads.caller_thread import CallerThread
from klamm.threads.loop_thread import LoopThread


@pytest.fixture
def caller() -> CallerThread:
    return CallerThread(LoopThread.shared())


def test_the_caller_gets_the_result_or_the_error(caller):
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        if number < 0:
            raise ValueError("negative")
        return 2 * number

    assert caller.run(double, 4) == 8
    with pytest.raises(ValueError, match="negative"):
        caller.run(double, -1)


def test_functions_are_called_in_the_waiting_thread_and_may_call_run_again(caller):
    heard = []

    async def name() -> str:
        return threading.current_thread().name

    def listen(argument: str) -> None:
        heard.append((argument, threading.current_thread(), caller.run(name)))

    async def work() -> str:
        await caller.invoke(listen, "once")
        await caller.invoke(listen, "twice")
        return "done"

    assert caller.run(work) == "done"
    me = threading.current_thread()
    assert heard == [("once", me, "klamm-loop"), ("twice", me, "klamm-loop")]


def test_an_exception_of_a_function_is_raised_from_invoke(caller):
    def fail(argument: int) -> None:
        raise KeyError(argument)

    async def work() -> str:
        try:
            await caller.invoke(fail, 3)
        except KeyError as error:
            return f"caught {error}"
        return "nothing came"

    assert caller.run(work) == "caught 3"


def test_run_on_the_event_loops_own_thread_is_refused(caller):
    async def nested() -> None:
        caller.run(asyncio.sleep, 0)

    with pytest.raises(IllegalStateError, match="would never return"):
        caller.run(nested)
