"""Tests the bound of requests for the health that are read at a time."""

from __future__ import annotations

import asyncio
from typing import Any

from klamm.rpc.status import CallFailed, Status
from klamm_server.rpc.before_login import READING_MAX, Readings


async def _never() -> Any:
    await asyncio.Event().wait()


def _begun(readings: Readings, network: str) -> asyncio.Task[Any]:
    return asyncio.create_task(readings.read(_never(), network))


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_beyond_the_bound_the_oldest_reading_of_the_network_with_the_most_ends() -> None:
    async def scenario() -> None:
        readings = Readings()
        honest = _begun(readings, "10.0.0.1")
        slow = [_begun(readings, "10.0.0.2") for _ in range(READING_MAX + 5)]
        await _turns()
        assert [each.done() for each in slow] == [True] * 6 + [False] * (READING_MAX - 1)
        assert not honest.done()
        for each in (honest, *slow):
            each.cancel()
        _, *ends = await asyncio.gather(honest, *slow, return_exceptions=True)
        refused = [end for end in ends if isinstance(end, CallFailed)]
        assert [each.status for each in refused] == [Status.RESOURCE_EXHAUSTED] * 6

    asyncio.run(scenario())


def test_readings_that_ended_take_no_place() -> None:
    async def scenario() -> None:
        readings = Readings()
        for _ in range(3):
            begun = [_begun(readings, "10.0.0.1") for _ in range(READING_MAX)]
            await _turns()
            assert not any(each.done() for each in begun)
            for each in begun:
                each.cancel()
            await asyncio.wait(begun)
            assert all(each.cancelled() for each in begun)

    asyncio.run(scenario())
