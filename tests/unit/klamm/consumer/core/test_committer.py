"""Tests which member a consumer commits as, and how long the last commit may take. The test plays the store."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from klamm.consumer.config import ConsumerConfig
from klamm.consumer.core.committer import Committer
from klamm.consumer.group.identity import Identity
from klamm.consumer.subscription import SubscriptionState
from klamm.model import TopicPartition
from klamm.offsets import OffsetAndMetadata
from tests.support.loop_time import run_without_waiting

TP = TopicPartition("t", 0)
OLD, NEW = Identity(1, "me"), Identity(2, "me")


class Store:
    """An OffsetStore that asks for the committing member only after its coordinator has answered."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.committed_by: list[Identity] = []

    async def commit(self, offsets, identify, *, timeout_ms: int, skip_gone: bool = False) -> None:
        await self.answers.wait()
        self.committed_by.append(identify())

    commit_once = commit


class World:
    def __init__(self) -> None:
        self.subscription = SubscriptionState()
        self.subscription.subscribe_topics(["t"])
        self.subscription.assign_from_group([TP])
        self.subscription.require(TP).seek(5)
        self.link = SimpleNamespace(identity=OLD, rebalancing=False, commit_identity=lambda: self.link.identity)
        self.store = Store()
        self.told: list = []
        config = ConsumerConfig.parse(group_id="group")
        self.committer = Committer(config, self.subscription, self.link, self.store, lambda call: call())

    async def become_new_and_answer(self) -> None:
        await asyncio.sleep(0)
        self.link.identity = NEW
        self.store.answers.set()


def test_a_commit_during_a_rebalance_is_sent_as_the_old_member():
    async def story() -> None:
        world = World()
        world.committer.commit_async({TP: OffsetAndMetadata(3)}, lambda *outcome: world.told.append(outcome))
        await world.become_new_and_answer()
        await world.committer.close(10_000)
        assert world.store.committed_by == [OLD]
        assert world.told == [({TP: OffsetAndMetadata(3)}, None)]

    asyncio.run(story())


def test_the_commit_before_revocation_is_sent_as_the_old_member():
    async def story() -> None:
        world = World()
        last = asyncio.create_task(world.committer.commit_before_revocation(10_000))
        await world.become_new_and_answer()
        await last
        assert world.store.committed_by == [OLD]

    asyncio.run(story())


def test_the_commit_before_revocation_times_out_if_the_store_hangs():
    async def story() -> None:
        world = World()
        async with asyncio.timeout(60):
            await world.committer.commit_before_revocation(1)
        assert world.store.committed_by == []

    run_without_waiting(story())


def test_before_the_first_join_nothing_is_committed_and_no_warning_is_logged(caplog):
    async def story() -> None:
        world = World()
        world.subscription.assign_from_group([])
        world.link.identity = Identity(-1, "")
        await world.committer.commit_before_revocation(10_000)
        assert world.store.committed_by == []

    asyncio.run(story())
    assert caplog.records == []
