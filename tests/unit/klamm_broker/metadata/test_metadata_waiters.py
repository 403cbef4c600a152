from __future__ import annotations

import asyncio
import dataclasses

from klamm_broker.metadata.metadata_waiters import MetadataWaiters
from klamm_server.metadata.image import MetadataImage
from tests.support.loop_time import run_without_waiting


class World:
    """An image that a test replaces."""

    def __init__(self) -> None:
        self.image = MetadataImage.empty()
        self.waiters = MetadataWaiters(lambda: self.image)

    def publish(self, end_index: int) -> None:
        self.image = dataclasses.replace(self.image, end_index=end_index)
        self.waiters.wake()


def test_each_waiter_wakes_when_the_metadata_reach_its_own_index() -> None:
    async def scenario() -> None:
        world = World()
        first, second = (asyncio.create_task(world.waiters.reach(end, timeout_ms=60_000)) for end in (5, 9))
        await asyncio.sleep(0)
        world.publish(4)
        world.publish(7)
        assert await first
        assert not second.done()
        world.publish(9)
        assert await second

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_an_index_that_the_metadata_have_reached_needs_no_wait() -> None:
    async def scenario() -> None:
        world = World()
        world.publish(5)
        assert await world.waiters.reach(5, timeout_ms=0)

    asyncio.run(scenario())


def test_a_wait_for_metadata_that_never_come_ends_at_its_timeout() -> None:
    async def scenario() -> None:
        assert not await World().waiters.reach(1, timeout_ms=60_000)

    run_without_waiting(scenario())
