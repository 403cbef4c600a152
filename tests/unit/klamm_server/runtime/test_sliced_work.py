"""Tests long work in slices: short work at once, and one slice of all long work in each turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest

from klamm_server.runtime.sliced_work import ITEMS_PER_TURN, SLICE_MAX_S, SlicedWork, map_in_slices


class Worker:
    """Work of some steps. Each step takes `step_s` of a clock, and is noted."""

    def __init__(self, step_s: float) -> None:
        self.now_s = 0.0
        self.done: list[str] = []
        self._step_s = step_s

    def clock_s(self) -> float:
        return self.now_s

    def work(self, name: str, steps: int) -> Generator[None, None, str]:
        for _ in range(steps):
            self.now_s += self._step_s
            self.done.append(name)
            yield
        return name


def test_short_work_is_done_at_once() -> None:
    worker = Worker(SLICE_MAX_S / 10)
    assert SlicedWork(worker.clock_s).begin(worker.work("a", 9)) == "a"


def test_work_that_takes_longer_pauses_after_a_slice() -> None:
    worker = Worker(SLICE_MAX_S / 10)
    slices = SlicedWork(worker.clock_s)
    work = worker.work("a", 25)
    assert slices.begin(work) is None
    assert len(worker.done) == 10
    assert asyncio.run(slices.finish(work)) == "a"
    assert len(worker.done) == 25


def test_each_turn_of_the_loop_has_one_slice_of_all_work() -> None:
    worker = Worker(SLICE_MAX_S)

    async def run() -> list[int]:
        slices = SlicedWork(worker.clock_s)
        tasks = [asyncio.create_task(slices.finish(worker.work(name, 3))) for name in "abc"]
        steps = []
        while not all(task.done() for task in tasks):
            before = len(worker.done)
            await asyncio.sleep(0)
            steps.append(len(worker.done) - before)
        return steps

    assert max(asyncio.run(run())) == 1
    assert "".join(worker.done) == "abcabcabc"


def test_an_error_of_the_work_is_raised() -> None:
    def work() -> Generator[None, None, str]:
        yield
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        SlicedWork().begin(work())


def test_cancelled_work_lets_the_next_one_run() -> None:
    worker = Worker(SLICE_MAX_S)

    async def run() -> str:
        slices = SlicedWork(worker.clock_s)
        first = asyncio.create_task(slices.finish(worker.work("a", 1_000_000)))
        second = asyncio.create_task(slices.finish(worker.work("b", 3)))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(run()) == "b"


def test_other_tasks_run_between_the_items_of_a_long_request() -> None:
    async def run() -> int:
        task = asyncio.create_task(map_in_slices(str, range(10 * ITEMS_PER_TURN)))
        turns = 0
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        assert task.result() == [str(number) for number in range(10 * ITEMS_PER_TURN)]
        return turns

    assert asyncio.run(run()) >= 10
