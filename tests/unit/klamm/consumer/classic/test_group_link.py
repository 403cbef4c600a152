"""Tests when a changed number of partitions makes the group's leader rebalance. The test plays the coordinator."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

from klamm.cluster.metadata import ClusterView, PartitionView, TopicView
from klamm.consumer.assignors.consumer_protocol import Subscription, encode_subscription
from klamm.consumer.classic.group_link import ClassicGroupLink
from klamm.consumer.config import ConsumerConfig
from klamm.retry import Backoff
from klamm.wire.v1 import coordinator_pb2

METADATA = encode_subscription(Subscription(topics=("t",)))


class Client:
    """The part of KlammClient that a ClassicGroupLink uses. SyncGroup is answered when `may_sync` is set."""

    def __init__(self) -> None:
        self.backoff = Backoff(initial_ms=1, max_ms=1, jitter=0.0)
        self.rng = random.Random(1)
        self.cluster = ClusterView()
        self.leader = "me"
        self.joins = 0
        self.may_sync = asyncio.Event()
        self.may_sync.set()
        self._listeners: list[Callable[[ClusterView, ClusterView], None]] = []

    def on_change(self, listener: Callable[[ClusterView, ClusterView], None]) -> None:
        self._listeners.append(listener)

    def partition(self, count: int) -> None:
        """Gives topic t `count` partitions from now on."""
        partitions = tuple(
            PartitionView(partition=number, leader=1, leader_epoch=1, replicas=(1,), isr=(1,))
            for number in range(count)
        )
        topic = TopicView(name="t", topic_id=uuid.UUID(int=1), partitions=partitions)
        before, self.cluster = self.cluster, ClusterView(topics={"t": topic})
        for listener in self._listeners:
            listener(before, self.cluster)

    async def retrying(self, operation, *, timeout_ms: int):
        return await operation()

    async def refresh_metadata(self, topics) -> ClusterView:
        return self.cluster

    async def coordinator_for(self, group_id: str, key_type: int = 0) -> SimpleNamespace:
        return SimpleNamespace(join_group=self._join, sync_group=self._sync)

    async def _join(self, request, *, timeout_ms: int) -> coordinator_pb2.JoinGroupResponse:
        self.joins += 1
        members = [coordinator_pb2.JoinedMember(member_id="me", metadata=METADATA)]
        return coordinator_pb2.JoinGroupResponse(
            generation_id=self.joins,
            protocol_name="range",
            leader=self.leader,
            member_id="me",
            members=members if self.leader == "me" else [],
        )

    async def _sync(self, request, *, timeout_ms: int) -> coordinator_pb2.SyncGroupResponse:
        await self.may_sync.wait()
        return coordinator_pb2.SyncGroupResponse()


class World:
    def __init__(self) -> None:
        self.client = Client()
        self.client.partition(2)
        self.link = ClassicGroupLink(self.client, ConsumerConfig.parse(group_id="group"), lambda: None)

    async def poll(self) -> bool:
        """Treats the link as a consumer's poll does, and runs the loop. Returns True if a join began."""
        self.link.take_assignment()
        prepare = self.link.polled()
        if prepare is not None:
            self.link.prepared((("range", METADATA),))
        for _ in range(20):
            await asyncio.sleep(0)
        return prepare is not None


def scenario(test: Callable[[World], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def main() -> None:
            world = World()
            await test(world)
            await world.link.close()

        asyncio.run(main())

    return run


@scenario
async def test_the_group_leader_rebalances_when_the_partition_count_changes(world):
    assert await world.poll()
    assert not await world.poll(), "nothing has changed"
    world.client.partition(3)
    assert await world.poll()
    assert not await world.poll()


@scenario
async def test_a_partition_count_changed_during_a_sync_rebalances_at_the_next_poll(world):
    world.client.may_sync.clear()
    assert await world.poll()
    world.client.partition(3)
    assert not await world.poll(), "the rebalance under way ends first"
    world.client.may_sync.set()
    assert not await world.poll(), "it was under way when this poll began"
    assert await world.poll()
    assert not await world.poll()


@scenario
async def test_a_former_group_leader_does_not_rebalance_when_the_partition_count_changes(world):
    await world.poll()
    world.client.leader = "another"
    world.link.request_rejoin("a test")
    assert await world.poll()
    world.client.partition(3)
    assert not await world.poll()
    assert world.client.joins == 2
