"""Tests the single timer of an event loop that drives a purgatory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from klamm.model import TopicPartition
from klamm_broker.purgatory.driver import PurgatoryDriver
from klamm_broker.purgatory.purgatory import Parker
from klamm_broker.purgatory.wake_ups import WAKE_UPS_PER_TURN
from klamm_server.runtime.clock import SystemClock
from tests.support.loop_time import LoopClock, run_without_waiting
from tests.support.waiting import settle

A = TopicPartition("a", 0)
ALICE = Parker("alice")


LONG_MS = 3_600_000


class Waiting:
    def __init__(self, on_done: Callable[[], None]) -> None:
        self.ready = False
        self.expired = False
        self._on_done = on_done

    def try_complete(self) -> bool:
        if self.ready:
            self._on_done()
        return self.ready

    def on_expiration(self) -> None:
        self.expired = True
        self._on_done()


class Operations:
    """Creates operations and keeps them."""

    def __init__(self, *, ready: bool = False) -> None:
        self.made: list[Waiting] = []
        self._ready = ready

    def __call__(self, on_done: Callable[[], None]) -> Waiting:
        self.made.append(Waiting(on_done))
        self.made[-1].ready = self._ready
        return self.made[-1]


def test_a_change_that_completes_the_operation_ends_the_wait() -> None:
    async def scenario() -> None:
        driver = PurgatoryDriver(max_parked=10, clock=SystemClock())
        operations = Operations()
        waiting = asyncio.ensure_future(driver.wait(operations, [A], LONG_MS, ALICE))
        await settle()
        assert len(driver) == 1
        operations.made[0].ready = True
        assert driver.check_and_complete(A) == 1
        await waiting
        assert (len(driver), operations.made[0].expired) == (0, False)
        driver.close()

    asyncio.run(scenario())


def test_an_operation_that_is_already_complete_is_not_parked() -> None:
    async def scenario() -> None:
        driver = PurgatoryDriver(max_parked=10, clock=SystemClock())
        await driver.wait(Operations(ready=True), [A], LONG_MS, ALICE)
        assert len(driver) == 0

    asyncio.run(scenario())


def test_waits_end_at_their_deadlines_in_order() -> None:
    async def scenario() -> None:
        driver = PurgatoryDriver(max_parked=10, clock=LoopClock())
        order: list[str] = []

        async def wait(name: str, wait_ms: int) -> None:
            operations = Operations()
            await driver.wait(operations, [A], wait_ms, ALICE)
            assert operations.made[0].expired
            order.append(name)

        async with asyncio.timeout(60):
            await asyncio.gather(wait("late", 500), wait("early", 1), wait("latest", 1_000))
        assert order == ["early", "late", "latest"]
        assert len(driver) == 0

    run_without_waiting(scenario())


def test_a_waiter_that_is_cancelled_during_a_change_is_removed() -> None:
    async def scenario() -> None:
        driver = PurgatoryDriver(max_parked=10, clock=SystemClock())
        operations = Operations()
        waiting = asyncio.ensure_future(driver.wait(operations, [A], LONG_MS, ALICE))
        await settle()
        waiting.cancel()
        operations.made[0].ready = True
        driver.check_and_complete(A)
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert len(driver) == 0
        driver.close()

    asyncio.run(scenario())


def test_a_change_that_ends_many_waits_lets_other_tasks_run_in_between() -> None:
    async def scenario() -> None:
        driver = PurgatoryDriver(max_parked=1_000, clock=SystemClock())
        operations = Operations()
        order: list[str] = []

        async def wait(name: str) -> None:
            await driver.wait(operations, [A], LONG_MS, ALICE)
            order.append(name)

        names = [f"waiter {number}" for number in range(3 * WAKE_UPS_PER_TURN)]
        waiting = [asyncio.create_task(wait(name)) for name in names]
        await settle()
        waiting.pop(WAKE_UPS_PER_TURN).cancel()
        del names[WAKE_UPS_PER_TURN]
        for operation in operations.made:
            operation.ready = True
        driver.check_and_complete(A)
        asyncio.get_running_loop().call_soon(order.append, "other")
        await asyncio.gather(*waiting)
        assert order.index("other") <= WAKE_UPS_PER_TURN
        assert [name for name in order if name != "other"] == names
        driver.close()

    asyncio.run(scenario())
