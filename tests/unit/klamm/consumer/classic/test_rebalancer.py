"""Tests the order of revoked, lost and assigned partitions, over a link whose group the test plays."""

from __future__ import annotations

import asyncio

import pytest

from klamm.consumer.assignors.consumer_protocol import Assignment, decode_subscription, encode_assignment
from klamm.consumer.classic.membership_events import PrepareJoin, TakeAssignment
from klamm.consumer.classic.rebalancer import ClassicRebalancer
from klamm.consumer.config import ConsumerConfig
from klamm.consumer.group.identity import Identity
from klamm.consumer.subscription import SubscriptionState
from klamm.model import TopicPartition

A, B, C, OTHER = (TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2), TopicPartition("u", 0))


class Link:
    """The methods of a ClassicGroupLink that the rebalancer uses."""

    group_id = "group"

    def __init__(self, story: list) -> None:
        self.story = story
        self.identity = Identity(1, "me")
        self.prepare: PrepareJoin | None = None
        self.assignment: TakeAssignment | None = None
        self.protocols: dict[str, bytes] = {}
        self.polls_noted = 0

    def polled(self) -> PrepareJoin | None:
        return self.prepare

    def prepared(self, protocols) -> None:
        self.prepare = None
        self.story.append("join")
        self.protocols = dict(protocols)

    def take_assignment(self) -> TakeAssignment | None:
        assignment, self.assignment = self.assignment, None
        return assignment

    def request_rejoin(self, reason: str) -> None:
        self.story.append("rejoin")

    def note_poll(self) -> None:
        self.polls_noted += 1


class World:
    """A subscription to t, with a listener that records its calls."""

    def __init__(self, strategy: str) -> None:
        self.story: list = []
        self.subscription = SubscriptionState()
        self.subscription.subscribe_topics(["t"])
        self.link = Link(self.story)
        self.progress = asyncio.Event()
        config = ConsumerConfig.parse(group_id="group", partition_assignment_strategy=strategy)
        self.commit_may_end: asyncio.Event | None = None
        self.rebalancer = ClassicRebalancer(
            self.subscription,
            self.link,
            config,
            invoke=self._invoke,
            commit=self._commit,
            on_progress=self.progress.set,
        )
        self.kept = self.rebalancer.reports.listen(self)

    async def _invoke(self, method, partitions) -> None:
        method(partitions)

    async def _commit(self) -> None:
        self.story.append("commit")
        if self.commit_may_end is not None:
            await self.commit_may_end.wait()

    def on_partitions_revoked(self, partitions) -> None:
        self.story.append(("revoked", sorted(partitions), sorted(self.subscription.assignment)))

    def on_partitions_assigned(self, partitions) -> None:
        self.story.append(("assigned", sorted(partitions), sorted(self.subscription.assignment)))

    def on_partitions_lost(self, partitions) -> None:
        self.story.append(("lost", sorted(partitions)))

    def advance(self) -> list:
        """Polls as often as needed. Returns the events of these polls."""

        async def poll() -> None:
            await self.rebalancer.advance()
            while self.rebalancer.waits:
                await asyncio.sleep(0)
                await self.rebalancer.advance()

        self.story.clear()
        asyncio.run(poll())
        return list(self.story)

    async def poll_while_the_commit_lasts(self) -> list:
        """Polls once while a commit lasts, which ends at `commit_may_end`. Returns the events of this poll."""
        self.story.clear()
        self.commit_may_end = asyncio.Event()
        await self.rebalancer.advance()
        await asyncio.sleep(0)
        return list(self.story)

    async def poll_after_the_commit(self) -> list:
        self.story.clear()
        self.commit_may_end.set()
        async with asyncio.timeout(60):
            await self.progress.wait()
        await self.rebalancer.advance()
        return list(self.story)

    def rebalance(self, *, lost: bool = False) -> list:
        self.link.prepare = PrepareJoin(lost=lost)
        return self.advance()

    def receive(self, *partitions: TopicPartition, generation_id: int = 1) -> list:
        self.give(*partitions, generation_id=generation_id)
        return self.advance()

    def give(self, *partitions: TopicPartition, generation_id: int = 1) -> None:
        self.link.identity = Identity(generation_id, "me")
        self.link.assignment = TakeAssignment(
            generation_id=generation_id,
            protocol_name="any",
            assignment=encode_assignment(Assignment(partitions=partitions)),
        )


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


def test_eager_revokes_all_partitions_before_the_join(eager):
    assert eager.rebalance() == ["commit", ("revoked", [A, B], [A, B]), "join"]
    assert eager.subscription.assignment == frozenset()
    assert eager.receive(B, C) == [("assigned", [B, C], [B, C])]


def test_eager_sticky_sends_its_former_assignment_as_user_data(eager):
    eager.receive(A, C, generation_id=5)
    eager.rebalance()
    subscription = decode_subscription(eager.link.protocols["sticky"])
    assert subscription.owned == ()
    assert subscription.user_data == b"\0\0\0\1\0\1t\0\0\0\2\0\0\0\0\0\0\0\2\0\0\0\5"
    assert decode_subscription(eager.link.protocols["range"]).user_data is None


def test_cooperative_keeps_all_partitions_during_the_join(cooperative):
    assert cooperative.rebalance() == ["commit", "join"]
    assert cooperative.subscription.assignment == {A, B}
    subscription = decode_subscription(cooperative.link.protocols["cooperative-sticky"])
    assert (subscription.owned, subscription.generation_id) == ((A, B), 1)


def test_cooperative_revokes_partitions_missing_in_the_assignment_and_joins_again(cooperative):
    assert cooperative.receive(B, C) == [
        "commit",
        "rejoin",
        ("revoked", [A], [A, B]),
        ("assigned", [C], [B, C]),
    ]


def test_cooperative_keeps_the_positions_of_partitions_that_stay(cooperative):
    cooperative.subscription.require(B).seek(77)
    cooperative.receive(B, C)
    assert cooperative.subscription.require(B).position == 77


def test_an_unchanged_assignment_revokes_nothing(cooperative):
    assert cooperative.receive(A, B) == [("assigned", [], [A, B])]


@pytest.mark.parametrize("world", ["eager", "cooperative"])
def test_a_lost_membership_commits_nothing_and_reports_everything_lost(world, request):
    world = request.getfixturevalue(world)
    assert world.rebalance(lost=True) == [("lost", [A, B]), "join"]
    assert world.subscription.assignment == frozenset()


def test_a_listener_without_on_partitions_lost_gets_on_partitions_revoked(cooperative):
    class Listener:
        heard = None

        def on_partitions_revoked(self, partitions) -> None:
            self.heard = partitions

    listener = Listener()
    cooperative.kept = cooperative.rebalancer.reports.listen(listener)
    cooperative.rebalance(lost=True)
    assert listener.heard == {A, B}


def test_partitions_of_unsubscribed_topics_are_revoked_before_the_join(cooperative):
    cooperative.subscription.subscribe_topics(["t", "u"])
    cooperative.receive(A, OTHER)
    cooperative.subscription.subscribe_topics(["u"])
    assert cooperative.rebalance() == ["commit", ("revoked", [A], [A, OTHER]), "join"]
    assert cooperative.subscription.assignment == {OTHER}


def test_assigned_partitions_outside_the_current_subscription_are_ignored_and_cause_a_rejoin(eager):
    eager.rebalance()
    assert eager.receive(A, OTHER) == ["rejoin", ("assigned", [A], [A])]


def test_a_listener_that_raises_stops_neither_the_join_nor_the_assignment(eager):
    class Broken:
        def on_partitions_revoked(self, partitions) -> None:
            raise ValueError("bug")

        on_partitions_assigned = on_partitions_revoked

    eager.kept = eager.rebalancer.reports.listen(Broken())
    with pytest.raises(ValueError, match="bug"):
        eager.rebalance()
    assert eager.story == ["commit", "join"]
    assert eager.subscription.assignment == frozenset()
    with pytest.raises(ValueError, match="bug"):
        eager.receive(C)
    assert eager.subscription.assignment == {C}


def test_the_join_waits_for_the_commit_but_no_poll_does(eager):
    async def story() -> None:
        eager.link.prepare = PrepareJoin(lost=False)
        assert await eager.poll_while_the_commit_lasts() == ["commit"]
        await eager.rebalancer.advance()
        assert eager.story == ["commit"], "one commit, however many polls come meanwhile"
        assert eager.rebalancer.waits
        assert eager.subscription.assignment == {A, B}
        assert await eager.poll_after_the_commit() == [("revoked", [A, B], [A, B]), "join"]
        assert not eager.rebalancer.waits

    asyncio.run(story())
    assert eager.receive(C) == [("assigned", [C], [C])]
    assert eager.rebalance() == ["commit", ("revoked", [C], [C]), "join"], "the next rebalance commits again"


def test_no_poll_waits_for_the_commit_before_a_cooperative_revocation(cooperative):
    async def story() -> None:
        cooperative.give(B, C)
        assert await cooperative.poll_while_the_commit_lasts() == ["commit"]
        assert cooperative.rebalancer.waits
        assert cooperative.subscription.assignment == {A, B}
        assert cooperative.link.polls_noted == 1, "or the member would leave after max.poll.interval.ms"
        assert await cooperative.poll_after_the_commit() == [
            "rejoin",
            ("revoked", [A], [A, B]),
            ("assigned", [C], [B, C]),
        ]

    asyncio.run(story())


@pytest.mark.parametrize("world", ["eager", "cooperative"])
def test_a_membership_lost_during_the_commit_ends_the_wait_for_the_commit(world, request):
    world = request.getfixturevalue(world)

    async def story() -> None:
        world.link.prepare = PrepareJoin(lost=False)
        await world.poll_while_the_commit_lasts()
        world.link.prepare = PrepareJoin(lost=True)
        await world.rebalancer.advance()
        assert world.story == ["commit", ("lost", [A, B]), "join"]
        assert not world.rebalancer.waits

    asyncio.run(story())


def test_an_assignment_is_dropped_if_the_membership_ends_during_the_commit(cooperative):
    async def story() -> None:
        cooperative.give(B, C)
        await cooperative.poll_while_the_commit_lasts()
        cooperative.link.identity = Identity(-1, "")
        cooperative.link.prepare = PrepareJoin(lost=True)
        await cooperative.rebalancer.advance()
        assert cooperative.story == ["commit", ("lost", [A, B]), "join"]

    asyncio.run(story())


def test_an_unexpected_error_of_the_commit_is_raised_from_the_poll(eager):
    eager.commit_may_end = object()  # This object cannot be awaited.
    with pytest.raises(AttributeError):
        eager.rebalance()
    assert not eager.rebalancer.waits


def test_without_automatic_commits_the_join_does_not_wait():
    world = World("range")
    world.receive(A)
    world.rebalancer = ClassicRebalancer(
        *(world.subscription, world.link, ConsumerConfig.parse(group_id="group", enable_auto_commit=False)),
        invoke=world._invoke,
        commit=None,
        on_progress=world.progress.set,
    )
    assert world.rebalance() == ["join"]


def test_closing_reports_partitions_as_revoked_or_as_lost_without_a_membership(eager):
    asyncio.run(eager.rebalancer.give_up())
    assert eager.story[-1] == ("revoked", [A, B], [A, B])
    eager.link.identity = Identity(-1, "")
    asyncio.run(eager.rebalancer.give_up())
    assert eager.story[-1] == ("lost", [A, B])
