"""What is revoked, lost and assigned, in which order; over a link whose group is the test's."""

from __future__ import annotations

import asyncio

import pytest

from klamm.consumer.config import ConsumerConfig
from klamm.consumer.consumer_protocol import Assignment, decode_subscription, encode_assignment
from klamm.consumer.membership_events import Identity, PrepareJoin, TakeAssignment
from klamm.consumer.rebalancer import Rebalancer
from klamm.consumer.subscription import SubscriptionState
from klamm.model import TopicPartition

A, B, C, OTHER = (TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2), TopicPartition("u", 0))


class Link:
    """A GroupLink's face towards the rebalancer."""

    group_id = "group"

    def __init__(self, story: list) -> None:
        self.story = story
        self.identity = Identity(1, "me")
        self.prepare: PrepareJoin | None = None
        self.assignment: TakeAssignment | None = None
        self.protocols: dict[str, bytes] = {}

    def polled(self) -> PrepareJoin | None:
        prepare, self.prepare = self.prepare, None
        return prepare

    def prepared(self, protocols) -> None:
        self.story.append("join")
        self.protocols = dict(protocols)

    def take_assignment(self) -> TakeAssignment | None:
        assignment, self.assignment = self.assignment, None
        return assignment

    def request_rejoin(self, reason: str) -> None:
        self.story.append("rejoin")


class World:
    """A subscription to t, with a listener that writes down what it hears."""

    def __init__(self, strategy: str) -> None:
        self.story: list = []
        self.subscription = SubscriptionState()
        self.subscription.subscribe_topics(["t"])
        self.link = Link(self.story)
        config = ConsumerConfig.parse(group_id="group", partition_assignment_strategy=strategy)
        self.rebalancer = Rebalancer(self.subscription, self.link, config, invoke=self._invoke, commit=self._commit)
        self.rebalancer.listener = self

    async def _invoke(self, method, partitions) -> None:
        method(partitions)

    async def _commit(self) -> None:
        self.story.append("commit")

    def on_partitions_revoked(self, partitions) -> None:
        self.story.append(("revoked", sorted(partitions), sorted(self.subscription.assignment)))

    def on_partitions_assigned(self, partitions) -> None:
        self.story.append(("assigned", sorted(partitions), sorted(self.subscription.assignment)))

    def on_partitions_lost(self, partitions) -> None:
        self.story.append(("lost", sorted(partitions)))

    def advance(self) -> list:
        """One poll's part; what happened in it."""
        self.story.clear()
        asyncio.run(self.rebalancer.advance())
        return list(self.story)

    def rebalance(self, *, lost: bool = False) -> list:
        self.link.prepare = PrepareJoin(lost=lost)
        return self.advance()

    def receive(self, *partitions: TopicPartition, generation_id: int = 1) -> list:
        self.link.assignment = TakeAssignment(
            generation_id=generation_id,
            protocol_name="any",
            assignment=encode_assignment(Assignment(partitions=partitions)),
        )
        return self.advance()


@pytest.fixture
def eager() -> World:
    world = World("range,sticky")
    world.receive(A, B)
    return world


@pytest.fixture
def cooperative() -> World:
    world = World("cooperative-sticky")
    world.receive(A, B)
    return world


def test_eager_gives_everything_up_before_it_joins(eager):
    assert eager.rebalance() == ["commit", ("revoked", [A, B], [A, B]), "join"]
    assert eager.subscription.assignment == frozenset()
    assert eager.receive(B, C) == [("assigned", [B, C], [B, C])]


def test_eager_sticky_brings_what_it_had_as_user_data(eager):
    eager.receive(A, C, generation_id=5)
    eager.rebalance()
    subscription = decode_subscription(eager.link.protocols["sticky"])
    assert subscription.owned == ()
    assert subscription.user_data == b"\0\0\0\1\0\1t\0\0\0\2\0\0\0\0\0\0\0\2\0\0\0\5"
    assert decode_subscription(eager.link.protocols["range"]).user_data is None


def test_cooperative_keeps_everything_while_it_joins(cooperative):
    assert cooperative.rebalance() == ["commit", "join"]
    assert cooperative.subscription.assignment == {A, B}
    subscription = decode_subscription(cooperative.link.protocols["cooperative-sticky"])
    assert (subscription.owned, subscription.generation_id) == ((A, B), 1)


def test_cooperative_revokes_what_the_assignment_lacks_and_joins_again(cooperative):
    assert cooperative.receive(B, C) == [
        "rejoin",
        "commit",
        ("revoked", [A], [A, B]),
        ("assigned", [C], [B, C]),
    ]


def test_cooperative_keeps_positions_of_what_stays(cooperative):
    cooperative.subscription.seek(B, 77)
    cooperative.receive(B, C)
    assert cooperative.subscription.require(B).position == 77


def test_nothing_is_revoked_when_nothing_goes(cooperative):
    assert cooperative.receive(A, B) == [("assigned", [], [A, B])]


@pytest.mark.parametrize("world", ["eager", "cooperative"])
def test_a_lost_membership_commits_nothing_and_reports_everything_lost(world, request):
    world = request.getfixturevalue(world)
    assert world.rebalance(lost=True) == [("lost", [A, B]), "join"]
    assert world.subscription.assignment == frozenset()


def test_who_does_not_listen_for_losses_hears_of_a_revocation(cooperative):
    class Listener:
        heard = None

        def on_partitions_revoked(self, partitions) -> None:
            self.heard = partitions

    cooperative.rebalancer.listener = listener = Listener()
    cooperative.rebalance(lost=True)
    assert listener.heard == {A, B}


def test_topics_no_longer_subscribed_to_are_given_up_before_the_join(cooperative):
    cooperative.subscription.subscribe_topics(["t", "u"])
    cooperative.receive(A, OTHER)
    cooperative.subscription.subscribe_topics(["u"])
    assert cooperative.rebalance() == ["commit", ("revoked", [A], [A, OTHER]), "join"]
    assert cooperative.subscription.assignment == {OTHER}


def test_partitions_of_a_subscription_that_has_changed_are_not_taken(eager):
    eager.rebalance()
    assert eager.receive(A, OTHER) == ["rejoin", ("assigned", [A], [A])]


def test_a_listener_that_raises_stops_neither_the_join_nor_the_assignment(eager):
    class Broken:
        def on_partitions_revoked(self, partitions) -> None:
            raise ValueError("bug")

        on_partitions_assigned = on_partitions_revoked

    eager.rebalancer.listener = Broken()
    with pytest.raises(ValueError, match="bug"):
        eager.rebalance()
    assert eager.story == ["commit", "join"]
    assert eager.subscription.assignment == frozenset()
    with pytest.raises(ValueError, match="bug"):
        eager.receive(C)
    assert eager.subscription.assignment == {C}


def test_closing_revokes_or_reports_lost(eager):
    asyncio.run(eager.rebalancer.give_up())
    assert eager.story[-1] == ("revoked", [A, B], [A, B])
    eager.link.identity = Identity(-1, "")
    asyncio.run(eager.rebalancer.give_up())
    assert eager.story[-1] == ("lost", [A, B])
