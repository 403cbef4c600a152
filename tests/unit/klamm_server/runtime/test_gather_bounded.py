"""Tests that a request asks about few items at the same time, and about each item once."""

from __future__ import annotations

import asyncio

import pytest

from klamm_server.runtime.gather_bounded import AT_ONCE, gather_bounded


class Asked:
    """A call that waits for some turns of the loop, and counts how many calls are running."""

    def __init__(self, turns: int = 0, fails_at: int = -1) -> None:
        self.running = self.most = self.calls = 0
        self._turns = turns
        self._fails_at = fails_at

    async def ask(self, number: int) -> str:
        self.calls += 1
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(self._turns):
            await asyncio.sleep(0)
        self.running -= 1
        if number == self._fails_at:
            raise ValueError(number)
        return f"answer {number}"


@pytest.mark.parametrize("count", [0, 1, AT_ONCE, AT_ONCE + 1, 1_000])
def test_each_item_has_its_result_and_few_are_asked_at_once(count: int) -> None:
    asked = Asked(turns=3)
    assert asyncio.run(gather_bounded(asked.ask, range(count))) == [f"answer {number}" for number in range(count)]
    assert asked.calls == count
    assert asked.most == min(count, AT_ONCE)


def test_other_tasks_run_between_answers_that_need_no_waiting() -> None:
    async def run() -> int:
        task = asyncio.create_task(gather_bounded(Asked().ask, range(100 * AT_ONCE)))
        turns = 0
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(run()) >= 100


@pytest.mark.parametrize("count", [2, AT_ONCE, AT_ONCE + 1])
def test_after_an_error_no_call_is_running(count: int) -> None:
    """A call may take a while to end after it was cancelled."""
    running: set[int] = set()
    cancelled: set[int] = set()

    async def ask(number: int) -> None:
        running.add(number)
        try:
            if number == 0:
                await asyncio.sleep(0)
                raise ValueError(number)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            cancelled.add(number)
            raise
        finally:
            running.remove(number)

    async def run() -> None:
        with pytest.raises(ValueError, match="0"):
            await gather_bounded(ask, range(count))
        assert (running, cancelled) == (set(), set(range(1, min(count, AT_ONCE))))

    asyncio.run(run())


def test_after_an_error_nothing_more_is_asked() -> None:
    asked = Asked(turns=1, fails_at=AT_ONCE)

    async def run() -> int:
        with pytest.raises(ValueError, match="32"):
            await gather_bounded(asked.ask, range(1_000))
        calls = asked.calls
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return asked.calls - calls

    assert asyncio.run(run()) == 0
    assert asked.calls <= 3 * AT_ONCE
