"""Tests the handling of failed look-ups of positions."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace

import pytest

from klamm.consumer.config import ConsumerConfig
from klamm.consumer.errors import LogTruncation, LogTruncationError, NoOffsetForPartitionError
from klamm.consumer.offset_policy import OffsetPolicy
from klamm.consumer.offsets.position_finder import PositionFinder
from klamm.consumer.offsets.position_resets import PositionResets
from klamm.consumer.position_reset import LostPosition
from klamm.consumer.subscription import SubscriptionState
from klamm.errors import FencedLeaderEpochError, NoBrokerError, TopicAuthorizationFailedError
from klamm.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from klamm.offsets import EpochEnd, OffsetAndMetadata, OffsetAndTimestamp
from klamm.retry import Backoff

TP = TopicPartition("t", 0)


class Epochs:
    """An EpochFinder that fails with each of `errors` in turn, then answers `ends`."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.ends: dict[TopicPartition, EpochEnd] = {}
        self.asked: list[dict[TopicPartition, int]] = []

    async def ask_once(self, epochs, found) -> None:
        self.asked.append(dict(epochs))
        found.update({tp: self.ends[tp] for tp in epochs if tp in self.ends})
        if self.errors:
            raise self.errors.pop(0)


class World:
    """A finder whose look-ups fail with each of `errors` in turn, then find offset 7."""

    def __init__(self, *errors: Exception, reset: str = "earliest") -> None:
        self.errors = list(errors)
        self.offsets: dict[int, int] = {}
        """The offset that a look-up returns for a timestamp. For all other timestamps it returns 7."""
        self.subscription = SubscriptionState()
        self.subscription.assign([TP])
        self.idle = asyncio.Event()
        self.epochs = Epochs()
        self.refreshed: list[set[str]] = []
        client = SimpleNamespace(
            backoff=Backoff(initial_ms=0, max_ms=0), rng=random.Random(1), refresh_metadata=self._refresh
        )
        policy = OffsetPolicy(self.subscription, reset)
        self.resets = PositionResets(ConsumerConfig.parse(group_id="g"), self._invoke)
        self.finder = PositionFinder(
            *(client, ConsumerConfig.parse(), self.subscription, policy, None, self, self.epochs, self.resets),
            self._on_progress,
        )

    async def _refresh(self, topics) -> None:
        self.refreshed.append(topics)

    async def _invoke(self, function, argument) -> None:
        function(argument)

    async def ask_once(self, wanted, found) -> None:
        if self.errors:
            raise self.errors.pop(0)
        found[TP] = OffsetAndTimestamp(self.offsets.get(wanted[TP], 7), 0)

    def _on_progress(self) -> None:
        if self.finder._task is None:
            self.idle.set()

    async def look_up(self) -> Exception | None:
        self.idle.clear()
        self.finder.start()
        async with asyncio.timeout(60):
            await self.idle.wait()
        return self.finder.take_failure()


def test_a_retriable_error_is_retried():
    async def story() -> None:
        world = World(NoBrokerError("scripted"), NoBrokerError("scripted"))
        assert await world.look_up() is None
        assert world.subscription.require(TP).position == 7

    asyncio.run(story())


@pytest.mark.parametrize("error", [TopicAuthorizationFailedError("scripted"), TypeError("a bug")])
def test_a_fatal_error_is_raised_once_and_the_next_look_up_succeeds(error):
    async def story() -> None:
        world = World(error)
        assert await world.look_up() is error
        assert await world.look_up() is None
        assert world.subscription.require(TP).position == 7

    asyncio.run(story())


OTHER = TopicPartition("t", 1)


def test_a_seek_drops_an_error_that_no_poll_has_raised():
    async def story() -> None:
        world = World(reset="none")
        world.finder.start()
        async with asyncio.timeout(60):
            await world.idle.wait()
        world.subscription.require(TP).seek(5)
        world.finder.drop_failure()
        assert world.finder.take_failure() is None
        assert isinstance(await World(reset="none").look_up(), NoOffsetForPartitionError)

    asyncio.run(story())


def test_a_lost_position_is_reported_with_the_new_one(caplog):
    async def story() -> None:
        world = World()
        world.subscription.require(TP).request_reset(EARLIEST_TIMESTAMP, LostPosition(2, 7, 9))
        assert await world.look_up() is None
        assert (world.resets.resets_total, world.resets.skipped_total) == (1, 5)

    asyncio.run(story())
    assert "group 'g' lost its position 2 in t-0" in caplog.text


def test_a_lost_position_is_reported_after_a_second_look_up_for_the_end_offset():
    async def story() -> None:
        world = World()
        world.offsets = {1234: -1, LATEST_TIMESTAMP: 9}
        world.subscription.require(TP).request_reset(1234, LostPosition(2, 7, 9))
        assert await world.look_up() is None
        assert world.subscription.require(TP).position == 9
        assert (world.resets.resets_total, world.resets.skipped_total) == (1, 7)

    asyncio.run(story())


def test_a_reset_that_the_user_asked_for_is_not_reported():
    async def story() -> None:
        world = World()
        world.subscription.require(TP).request_reset(LATEST_TIMESTAMP)
        assert await world.look_up() is None
        assert world.resets.resets_total == 0

    asyncio.run(story())


def test_a_position_reset_to_the_point_of_divergence_is_reported():
    async def story() -> None:
        world = World()
        world.subscription.require(TP).seek(9, 3)
        world.epochs.ends = {TP: EpochEnd(2, 7, 6)}
        assert await world.look_up() is None
        assert (world.resets.resets_total, world.resets.skipped_total) == (1, 0)

    asyncio.run(story())


def test_a_position_with_an_epoch_is_fetchable_after_its_validation():
    async def story() -> None:
        world = World()
        world.subscription.require(TP).seek(9, 3)
        world.epochs.errors = [FencedLeaderEpochError("the metadata are old")]
        world.epochs.ends = {}
        asking = asyncio.create_task(world.look_up())
        while not world.refreshed:  # noqa: ASYNC110 - the finder's own progress is what it waits for
            await asyncio.sleep(0)
        world.epochs.ends = {TP: EpochEnd(3, 9, 6)}
        assert await asking is None
        assert world.epochs.asked[0] == {TP: 3}
        assert world.refreshed[0] == {"t"}
        assert world.subscription.require(TP).fetchable

    asyncio.run(story())


def test_a_partition_that_cannot_be_validated_does_not_delay_the_others():
    async def story() -> None:
        world = World()
        world.subscription.assign([TP, OTHER])
        world.subscription.require(TP).seek(9, 3)
        world.subscription.require(OTHER).seek(9, 3)
        world.epochs.ends = {TP: EpochEnd(3, 9, 6)}
        world.epochs.errors = [NoBrokerError("scripted")] * 1_000
        world.finder.start()
        while not world.subscription.require(TP).fetchable:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        assert set(world.subscription.validating()) == {OTHER}
        await world.finder.close()

    asyncio.run(story())


def test_failing_offset_look_ups_do_not_delay_validations():
    async def story() -> None:
        world = World(*[NoBrokerError("no offsets")] * 1_000)
        world.subscription.assign([TP, OTHER])
        world.subscription.require(OTHER).seek(9, 3)
        world.epochs.ends = {OTHER: EpochEnd(3, 9, 6)}
        world.finder.start()
        while not world.subscription.require(OTHER).fetchable:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        await world.finder.close()

    asyncio.run(story())


def test_truncation_without_a_policy_is_an_error_of_every_poll_until_a_seek():
    async def story() -> None:
        world = World(reset="none")
        world.subscription.require(TP).seek(9, 3)
        world.epochs.ends = {TP: EpochEnd(2, 7, 6)}
        for _ in range(2):
            failure = await world.look_up()
            assert isinstance(failure, LogTruncationError)
            assert failure.truncations == (LogTruncation(TP, 9, 3, OffsetAndMetadata(7, "", 2)),)
        divergent = failure.divergent_offsets[TP]
        world.subscription.require(TP).seek(divergent.offset, divergent.leader_epoch)
        assert await world.look_up() is None
        assert world.subscription.require(TP).position == 7

    asyncio.run(story())


def test_truncation_with_a_policy_resets_the_position_and_is_logged(caplog):
    async def story() -> None:
        world = World()
        world.subscription.require(TP).seek(9, 3)
        world.epochs.ends = {TP: EpochEnd(2, 7, 6)}
        assert await world.look_up() is None
        assert world.subscription.require(TP).position == 7

    asyncio.run(story())
    assert "t-0: what was read from offset 7" in caplog.text


def test_a_divergence_that_cannot_be_located_is_logged(caplog):
    async def story() -> None:
        world = World(reset="none")
        world.subscription.require(TP).seek(9, 3)
        world.epochs.ends = {TP: EpochEnd(2, 20, 6)}
        assert await world.look_up() is None

    asyncio.run(story())
    assert "cannot say where the logs diverge" in caplog.text
