"""What becomes of a look-up of positions that fails."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace

import pytest

from klamm.consumer.config import ConsumerConfig
from klamm.consumer.offset_policy import OffsetPolicy
from klamm.consumer.position_finder import PositionFinder
from klamm.consumer.subscription import SubscriptionState
from klamm.errors import NoBrokerError, TopicAuthorizationFailedError
from klamm.model import TopicPartition
from klamm.offsets import OffsetAndTimestamp
from klamm.retry import Backoff

TP = TopicPartition("t", 0)


class World:
    """A finder whose look-ups fail with each of `errors` in turn, then find offset 7."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.subscription = SubscriptionState()
        self.subscription.assign([TP])
        self.idle = asyncio.Event()
        client = SimpleNamespace(backoff=Backoff(initial_ms=0, max_ms=0), rng=random.Random(1))
        policy = OffsetPolicy(self.subscription, "earliest")
        self.finder = PositionFinder(
            *(client, ConsumerConfig.parse(), self.subscription, policy, None, self, self._on_progress)
        )

    async def ask_once(self, wanted, found) -> None:
        if self.errors:
            raise self.errors.pop(0)
        found[TP] = OffsetAndTimestamp(7, 0)

    def _on_progress(self) -> None:
        if self.finder._task is None:
            self.idle.set()

    async def look_up(self) -> Exception | None:
        self.idle.clear()
        self.finder.kick()
        async with asyncio.timeout(10):
            await self.idle.wait()
        return self.finder.take_failure()


def test_what_may_pass_is_tried_again():
    async def story() -> None:
        world = World(NoBrokerError("scripted"), NoBrokerError("scripted"))
        assert await world.look_up() is None
        assert world.subscription.require(TP).position == 7

    asyncio.run(story())


@pytest.mark.parametrize("error", [TopicAuthorizationFailedError("scripted"), TypeError("a bug")])
def test_anything_else_is_an_error_of_the_next_poll_and_the_one_after_it_tries_again(error):
    async def story() -> None:
        world = World(error)
        assert await world.look_up() is error
        assert await world.look_up() is None
        assert world.subscription.require(TP).position == 7

    asyncio.run(story())
