"""Tests which connections a channel hands out, and when it makes others. No connection has a socket."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections.abc import Awaitable, Callable

import pytest

from klamm.rpc.kafka_listener import KafkaListener
from klamm.rpc.record_channel import WORTHWHILE_BYTES, Dialled, RecordChannel
from klamm.rpc.record_connection import RecordConnection
from klamm.rpc.status import CallFailed, Status
from tests.support.loop_time import run_without_waiting

LISTENER = KafkaListener("h:1", "cluster", 7)
CONNECTIONS_MAX = 2


class Calls:
    """A listener that a test opens and shuts."""

    def __init__(self) -> None:
        self.dialled = 0
        self.failure: Exception | None = None
        self.lifetime_s = math.inf
        self.channel = self.new_channel()
        self.channel.count(WORTHWHILE_BYTES)

    def new_channel(self) -> RecordChannel:
        """Returns a channel that has exchanged nothing."""
        return RecordChannel(LISTENER, self.dial, random.Random(1), connections_max=CONNECTIONS_MAX)

    async def dial(self, listener: KafkaListener) -> Dialled:
        assert listener == LISTENER
        self.dialled += 1
        if self.failure is not None:
            raise self.failure
        ends_s = asyncio.get_running_loop().time() + self.lifetime_s
        return Dialled(RecordConnection(listener.address, "me", -1), ends_s)

    async def taken(self) -> Dialled:
        """Returns a connection, which is made if none is free."""
        found = self.channel.take()
        while found is None:
            await asyncio.sleep(0)
            found = self.channel.take()
        return found


def run(scenario: Callable[[Calls], Awaitable[None]]) -> None:
    async def whole() -> None:
        calls = Calls()
        await scenario(calls)
        await calls.channel.close()

    run_without_waiting(whole())


def test_a_connection_is_used_again() -> None:
    async def scenario(calls: Calls) -> None:
        assert calls.channel.take() is None
        first = await calls.taken()
        calls.channel.give_back(first)
        assert calls.channel.take() is first
        assert calls.dialled == 1

    run(scenario)


def test_a_few_small_requests_make_no_connection() -> None:
    async def scenario(calls: Calls) -> None:
        calls.channel = calls.new_channel()
        for size_bytes in (0, WORTHWHILE_BYTES - 1):
            calls.channel.count(size_bytes)
            assert calls.channel.take() is None
            await asyncio.sleep(0)
            assert not calls.dialled
        calls.channel.count(1)
        assert calls.channel.take() is None
        await asyncio.sleep(0)
        assert calls.dialled == 1

    run(scenario)


def test_no_more_than_the_most_connections_are_made() -> None:
    async def scenario(calls: Calls) -> None:
        used = [await calls.taken() for _ in range(CONNECTIONS_MAX)]
        assert calls.channel.take() is None
        await asyncio.sleep(0)
        assert calls.dialled == len(set(used)) == CONNECTIONS_MAX

    run(scenario)


def test_connections_that_are_closed_or_old_are_replaced() -> None:
    async def scenario(calls: Calls) -> None:
        closed = await calls.taken()
        closed.connection.close()
        calls.channel.give_back(closed)
        calls.lifetime_s = 10
        ended = await calls.taken()
        calls.channel.give_back(ended)
        await asyncio.sleep(10)
        calls.lifetime_s = math.inf
        await calls.taken()
        assert not ended.connection.is_open
        assert calls.dialled == 3

    run(scenario)


@pytest.mark.parametrize("failure", [OSError("refused"), TimeoutError(), CallFailed(Status.UNAVAILABLE)])
def test_a_listener_that_cannot_be_reached_is_dialled_again_after_growing_pauses(failure: Exception) -> None:
    times: list[float] = []

    async def scenario() -> None:
        calls = Calls()
        loop = asyncio.get_running_loop()
        calls.failure = failure
        while len(times) < 9:
            before = calls.dialled
            assert calls.channel.take() is None
            await asyncio.sleep(0.1)
            times.extend([loop.time()] * (calls.dialled - before))
        calls.failure = None
        await asyncio.sleep(70)
        await calls.taken()
        await calls.channel.close()

    run_without_waiting(scenario())
    pauses = [second - first for first, second in itertools.pairwise(times)]
    assert 0.7 < pauses[0] < 1.4
    assert all(48 < pause < 61 for pause in pauses[-2:])


def test_a_lost_connection_closes_the_free_ones() -> None:
    """A call on each of them would wait for its whole time-out if the broker's machine has lost its power."""

    async def scenario(calls: Calls) -> None:
        lost, free = await calls.taken(), await calls.taken()
        calls.channel.give_back(free)
        lost.connection.close()
        calls.channel.give_back(lost)
        assert not free.connection.is_open
        assert await calls.taken() not in (lost, free)

    run(scenario)


def test_closing_ends_the_attempt_to_connect_and_all_connections() -> None:
    async def scenario(calls: Calls) -> None:
        used, free = await calls.taken(), await calls.taken()
        calls.channel.give_back(free)
        calls.channel.take()
        await calls.channel.close()
        assert not used.connection.is_open
        assert not free.connection.is_open

    run(scenario)
