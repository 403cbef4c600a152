"""Tests which requests a subscription sends between polls while its topics are not known."""

from __future__ import annotations

import asyncio
import random
import re
import uuid
from collections.abc import Callable

from klamm.cluster.metadata import ClusterView, TopicView
from klamm.consumer.config import ConsumerConfig
from klamm.consumer.core.topic_watch import TopicWatch
from klamm.consumer.subscription import SubscriptionState
from klamm.errors import (
    ErrorCode,
    KlammError,
    NoBrokerError,
    TopicAuthorizationFailedError,
)
from klamm.retry import Backoff


class Client:
    """The part of KlammClient that a TopicWatch uses. The first `failures` requests find no broker."""

    def __init__(self, failures: int) -> None:
        self.backoff = Backoff(initial_ms=0, max_ms=0)
        self.rng = random.Random(1)
        self.cluster = ClusterView()
        self.asked: list[set[str] | None] = []
        self._failures = failures
        self._listeners: list[Callable[[ClusterView, ClusterView], None]] = []

    error: type[KlammError] = NoBrokerError
    denials = 0
    """So many requests say that the topics are kept from the client."""

    def on_change(self, listener: Callable[[ClusterView, ClusterView], None]) -> None:
        self._listeners.append(listener)

    async def refresh_metadata(self, topics: set[str] | None) -> None:
        self.asked.append(topics)
        await asyncio.sleep(0)
        if len(self.asked) <= self._failures:
            raise self.error("scripted")
        if len(self.asked) <= self.denials:
            self.cluster = ClusterView(topic_errors=dict.fromkeys(topics or (), ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            return
        self.create("a-1", "a-2", "b-1")

    def create(self, *names: str) -> None:
        known = {**self.cluster.topics}
        known |= {name: TopicView(name=name, topic_id=uuid.uuid4(), partitions=()) for name in names}
        before, self.cluster = self.cluster, ClusterView(topics=known)
        for listener in self._listeners:
            listener(before, self.cluster)


class World:
    def __init__(self, failures: int = 0) -> None:
        self.client = Client(failures)
        self.subscription = SubscriptionState()
        self.matches: list[frozenset[str]] = []
        self.watch = TopicWatch(self.client, ConsumerConfig.parse(), self.subscription, self._on_match_changed, list)

    def _on_match_changed(self) -> None:
        self.matches.append(self.subscription.topics)

    def subscribe(self, pattern: str) -> None:
        self.subscription.subscribe_pattern(re.compile(pattern))
        self.watch.pattern_changed()

    async def settle(self) -> None:
        """Watches once and runs the loop until no request is left."""
        async with asyncio.timeout(60):
            self.watch.watch()
            while self.watch._asking is not None:  # noqa: ASYNC110 - nothing tells that nothing is left to ask
                await asyncio.sleep(0)


def test_topics_of_a_pattern_are_requested_outside_the_poll_until_a_server_answers():
    async def story() -> None:
        world = World(failures=3)
        world.subscribe("a-.*")
        world.watch.watch()
        assert world.client.asked == [], "the poll itself asks nobody, so it waits for nobody"
        await world.settle()
        assert world.client.asked == [None] * 4
        assert world.matches == [{"a-1", "a-2"}]
        await world.settle()
        assert len(world.client.asked) == 4, "what is known is not asked for again"

    asyncio.run(story())


def test_a_pattern_matches_topics_created_later_until_it_is_replaced():
    async def story() -> None:
        world = World()
        world.subscribe("a-.*")
        await world.settle()
        world.client.create("a-3")
        assert world.matches[-1] == {"a-1", "a-2", "a-3"}
        world.subscribe("b-.*")
        await world.settle()
        assert world.matches[-1] == {"b-1"}

    asyncio.run(story())


def test_a_pattern_is_not_applied_after_an_unsubscribe():
    async def story() -> None:
        world = World()
        world.subscribe("a-.*")
        world.watch.watch()
        await asyncio.sleep(0)
        world.subscription.unsubscribe()
        await world.settle()
        assert world.matches == []

    asyncio.run(story())


def test_missing_topics_are_asked_for_by_name():
    async def story() -> None:
        world = World(failures=1)
        world.subscription.subscribe_topics(["a-1", "b-1"])
        await world.settle()
        assert world.client.asked == [{"a-1", "b-1"}] * 2

    asyncio.run(story())


def test_an_unauthorized_topic_is_kept_as_an_error_for_the_next_poll_and_retried():
    async def story() -> None:
        world = World()
        world.client.denials = 2
        world.subscription.subscribe_topics(["b-1"])
        await world.settle()
        failure = world.watch.take_failure()
        assert isinstance(failure, TopicAuthorizationFailedError)
        assert "'b-1'" in str(failure)
        assert world.client.asked == [{"b-1"}] * 3, "it went on asking until it was told of the topic"

    asyncio.run(story())


def test_closing_the_topic_watch_ends_its_requests():
    async def story() -> None:
        world = World(failures=10**9)
        world.subscribe("a-.*")
        world.watch.watch()
        await asyncio.sleep(0)
        await world.watch.close()
        asked = len(world.client.asked)
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(world.client.asked) == asked

    asyncio.run(story())
