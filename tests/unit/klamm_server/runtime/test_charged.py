"""Tests which time of a coroutine is charged, and that its result, its exceptions and its end stay the same."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from klamm_server.runtime.charged import charged
from tests.support.processes import clocks


def test_the_steps_of_a_coroutine_are_charged_but_not_its_waits() -> None:
    now_s = 0.0

    def work_for(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    async def scenario() -> None:
        gone = asyncio.get_running_loop().create_future()

        async def work() -> str:
            work_for(1)
            with pytest.raises(ConnectionError):
                await gone
            work_for(2)
            await asyncio.sleep(0)
            work_for(4)
            return "done"

        def arrive() -> None:
            work_for(100)
            gone.set_exception(ConnectionError())

        asyncio.get_running_loop().call_soon(arrive)
        assert await charged(work(), charges.append) == "done"

    charges: list[float] = []
    with clocks(elapsed_s=lambda: now_s):
        asyncio.run(scenario())
    assert charges == [1, 2, 4]


def test_cancellation_and_exceptions_pass_through_a_charged_coroutine() -> None:
    async def scenario() -> None:
        ended = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(True)

        async def failing() -> None:
            raise ConnectionError

        charges: list[float] = []
        task = asyncio.create_task(charged(work(), charges.append))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [True]
        with pytest.raises(ConnectionError):
            await charged(failing(), charges.append)
        given_up: Coroutine[Any, Any, None] = charged(work(), charges.append)
        given_up.send(None)
        given_up.close()
        assert ended == [True, True]

    asyncio.run(scenario())
