"""Tests how a broker asks the coordinators about holds, and what it makes of missing answers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from klamm.errors import ErrorCode
from klamm.model import GROUP_METADATA_TOPIC, TopicPartition, coordinator_shard
from klamm.wire.v1.coordinator_pb2 import LowestOffset, LowestOffsetsRequest, LowestOffsetsResponse
from klamm_broker.io.hold_offsets import PARTITIONS_PER_REQUEST, HoldOffsets
from klamm_broker.log.cleaning.retention_hold import NO_GROUP, LowOffset
from klamm_server.runtime.clock import Clock
from tests.support.fake_offsets_log import unavailable

COUNT = 4
P = TopicPartition("t", 0)
A = coordinator_shard("a", COUNT)
NOTHING: Any = None
TOPIC_ID = uuid.UUID(int=7)


class SteppingClock:
    """A clock that is `step_ms` later each time that it is read."""

    def __init__(self, step_ms: int) -> None:
        self._step_ms = step_ms
        self._now_ms = 0

    def wall_ms(self) -> int:
        raise AssertionError("a deadline is monotonic")

    def monotonic_ms(self) -> int:
        self._now_ms += self._step_ms
        return self._now_ms


class Coordinator:
    """A coordinator that owns some shards, in which a group has committed one offset in each partition."""

    def __init__(self, shards: Iterable[int], lowest: LowOffset | None = None) -> None:
        self.shards = set(shards)
        self.loading: set[int] = set()
        self.lowest = lowest
        self.error: Exception | None = None
        self.code = ErrorCode.NONE
        self.requests: list[LowestOffsetsRequest] = []

    async def lowest_offsets(self, request: LowestOffsetsRequest, timeout_ms: int) -> LowestOffsetsResponse:
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        if self.code:
            return LowestOffsetsResponse(error_code=self.code)
        offsets = [
            LowestOffset(topic=topic.topic, partition=number, offset=self.lowest.offset, group_id=self.lowest.group_id)
            for topic in request.topics
            for number in topic.partitions
            if self.lowest is not None
        ]
        return LowestOffsetsResponse(shards=(self.shards & set(request.shards)) - self.loading, offsets=offsets)


class Channels:
    def __init__(self, *coordinators: Coordinator) -> None:
        self.coordinators = coordinators

    def owner_of(self, topic: str, shard: int) -> Coordinator | None:
        assert topic == GROUP_METADATA_TOPIC
        return next((coordinator for coordinator in self.coordinators if shard in coordinator.shards), None)


def lowest(
    *coordinators: Coordinator,
    holds: dict[TopicPartition, tuple[str, ...]],
    has_topic: bool = True,
    clock: Clock | None = None,
) -> dict[TopicPartition, LowOffset | None]:
    topics = {P.topic: SimpleNamespace(topic_id=TOPIC_ID)}
    if has_topic:
        topics[GROUP_METADATA_TOPIC] = SimpleNamespace(partitions=range(COUNT))
    image: Any = SimpleNamespace(topic=topics.get)
    offsets = HoldOffsets(NOTHING, lambda: image, NOTHING, clock or SteppingClock(0), timeout_ms=1_000)
    offsets._channels = Channels(*coordinators)
    return asyncio.run(offsets.lowest(holds))


def test_the_lowest_offset_of_all_coordinators_counts() -> None:
    one, other = Coordinator({0, 1}, LowOffset(7, "a")), Coordinator({2, 3}, LowOffset(5, "b"))
    assert lowest(one, other, holds={P: ("*",)}) == {P: LowOffset(5, "b")}
    assert [list(each.requests[0].shards) for each in (one, other)] == [[0, 1], [2, 3]]
    assert lowest(Coordinator(range(COUNT)), holds={P: ("*",)}) == {P: NO_GROUP}


def test_a_named_group_is_asked_for_in_its_shard_only() -> None:
    owner, other = Coordinator({A}, LowOffset(7, "a")), Coordinator(set(range(COUNT)) - {A})
    assert lowest(owner, other, holds={P: ("a",)}) == {P: LowOffset(7, "a")}
    (request,) = owner.requests
    (topic,) = request.topics
    assert (list(request.shards), list(topic.group_ids), topic.all_groups) == ([A], ["a"], False)
    assert topic.topic_id == TOPIC_ID.bytes, "so that a deleted group holds a later topic of this name"
    assert other.requests == []


def test_without_the_answer_of_every_shard_the_offset_is_not_known() -> None:
    one, other = Coordinator({0, 1}, LowOffset(7, "a")), Coordinator({2, 3}, LowOffset(9, "b"))
    holds = {P: ("*",)}
    assert lowest(one, holds=holds) == {P: None}, "two shards have no owner"
    other.loading = {3}
    assert lowest(one, other, holds=holds) == {P: None}
    other.loading, other.error = set(), unavailable()
    assert lowest(one, other, holds=holds) == {P: None}
    other.error, other.code = None, ErrorCode.INVALID_REQUEST
    assert lowest(one, other, holds=holds) == {P: None}
    other.code = ErrorCode.NONE
    assert lowest(one, other, holds=holds) == {P: LowOffset(7, "a")}


def test_before_the_first_commit_nobody_is_asked() -> None:
    assert lowest(holds={P: ("*",)}, has_topic=False) == {P: NO_GROUP}
    assert lowest(holds={P: ("a",)}, has_topic=False) == {P: LowOffset(0, "a")}


def test_very_many_partitions_are_asked_for_in_several_requests() -> None:
    coordinator = Coordinator(range(COUNT), LowOffset(1, "a"))
    holds = {TopicPartition("t", number): ("*",) for number in range(PARTITIONS_PER_REQUEST + 1)}
    assert set(lowest(coordinator, holds=holds).values()) == {LowOffset(1, "a")}
    sizes = [sum(len(topic.partitions) for topic in request.topics) for request in coordinator.requests]
    assert sizes == [PARTITIONS_PER_REQUEST, 1]


def test_partitions_whose_turn_does_not_come_in_time_have_no_answer() -> None:
    coordinator = Coordinator(range(COUNT), LowOffset(1, "a"))
    holds = {TopicPartition("t", number): ("*",) for number in range(3 * PARTITIONS_PER_REQUEST)}
    found = lowest(coordinator, holds=holds, clock=SteppingClock(400))
    assert [found[TopicPartition("t", number)] for number in (0, 1_999, 2_000, 2_999)] == [
        LowOffset(1, "a"),
        LowOffset(1, "a"),
        None,
        None,
    ]
    assert len(coordinator.requests) == 2
