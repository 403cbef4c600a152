"""Tests the pool of request bytes: refusals, waiting in order, and no lost bytes."""

from __future__ import annotations

import asyncio

import pytest

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm_broker.io.request_memory import RequestMemory


def test_a_request_that_does_not_fit_the_pool_is_refused_until_there_is_room() -> None:
    memory = RequestMemory(100)
    memory.take(60)
    with pytest.raises(EXCEPTIONS[ErrorCode.THROTTLING_QUOTA_EXCEEDED], match=r"queued\.max\.request\.bytes=100"):
        memory.take(41)
    memory.take(40)
    memory.give_back(60)
    assert memory.free_bytes == 60


def test_an_answer_may_exceed_the_pool_and_then_no_memory_is_free() -> None:
    memory = RequestMemory(100)
    memory.take_anyway(150)
    assert memory.free_bytes == 0
    memory.give_back(150)
    assert memory.free_bytes == 100


def test_releasing_more_memory_than_was_taken_is_an_assertion_error() -> None:
    memory = RequestMemory(100)
    memory.take(10)
    with pytest.raises(AssertionError):
        memory.give_back(11)


def test_waiters_are_served_in_order() -> None:
    async def scenario() -> None:
        memory = RequestMemory(100)
        memory.take(80)
        served: list[int] = []

        async def wait(size_bytes: int) -> None:
            await memory.wait_take(size_bytes)
            served.append(size_bytes)

        waiting = [asyncio.ensure_future(wait(size)) for size in (50, 10, 30)]
        await asyncio.sleep(0)
        # The small request would fit, but it came later and must not starve the large one.
        assert served == []
        memory.give_back(80)
        await asyncio.gather(*waiting)
        assert served == [50, 10, 30]
        assert memory.held_bytes == 90

    asyncio.run(scenario())


def test_an_idle_pool_accepts_a_request_larger_than_the_pool() -> None:
    async def scenario() -> None:
        memory = RequestMemory(100)
        await memory.wait_take(500)
        waiting = asyncio.ensure_future(memory.wait_take(300))
        await asyncio.sleep(0)
        assert not waiting.done()
        memory.give_back(500)
        await waiting
        assert memory.held_bytes == 300

    asyncio.run(scenario())


@pytest.mark.parametrize("granted_first", [False, True])
def test_a_cancelled_waiter_keeps_nothing(granted_first: bool) -> None:
    async def scenario() -> None:
        memory = RequestMemory(100)
        memory.take(100)
        waiting = asyncio.ensure_future(memory.wait_take(70))
        await asyncio.sleep(0)
        if granted_first:
            memory.give_back(100)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        if not granted_first:
            memory.give_back(100)
        assert memory.held_bytes == 0

    asyncio.run(scenario())
