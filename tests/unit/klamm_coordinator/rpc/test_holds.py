"""Tests LowestOffsets of shards with real logs in memory: owners, former owners, and shards that are not loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm.wire.v1.coordinator_pb2 import HeldTopic, LowestOffset, LowestOffsetsRequest, LowestOffsetsResponse
from klamm_coordinator.groups.topics import FixedTopics, TopicInfo
from klamm_coordinator.io.shard_host import ShardHost
from klamm_coordinator.offsets.messages import (
    CommitOffset,
    CommitOffsets,
    CommitReply,
    DeleteGroups,
    DeleteGroupsReply,
)
from klamm_coordinator.rpc.holds import GROUP_ID_MAX, PARTITIONS_MAX, HoldsRpc
from tests.support.fake_offsets_log import FakeOffsetsLog
from tests.support.waiting import until
from tests.unit.klamm_coordinator.io.test_shard_host import host_on, loaded

ALL = HeldTopic(topic="t", partitions=[0, 1], all_groups=True)
NAMED = HeldTopic(topic="t", partitions=[0], group_ids=["g", "new"])
CONTEXT: Any = None


class OneShard:
    """Shard 0, which every group is in, if `host` is set."""

    def __init__(self, host: ShardHost[Any] | None) -> None:
        self._host = host

    def __iter__(self) -> Iterator[ShardHost[Any]]:
        return iter([] if self._host is None else [self._host])

    def number_of(self, key: str) -> int:
        return 0


async def asked(
    host: ShardHost[Any] | None, *topics: HeldTopic, shards: tuple[int, ...] = (0,)
) -> LowestOffsetsResponse:
    one: Any = OneShard(host)
    return await HoldsRpc(one).lowest_offsets(LowestOffsetsRequest(shards=shards, topics=topics), CONTEXT)


async def commit(host: ShardHost[Any], group_id: str, offset: int, partition: int = 0) -> None:
    wanted = CommitOffset(partition=TopicPartition("t", partition), offset=offset, leader_epoch=-1, metadata="")
    reply = await host.ask(
        lambda reply_id: CommitOffsets(
            reply_id=reply_id,
            group_id=group_id,
            generation_id=-1,
            member_id="",
            instance_id=None,
            offsets=(wanted,),
        )
    )
    assert isinstance(reply, CommitReply)
    assert reply.errors == (ErrorCode.NONE,)


async def delete(host: ShardHost[Any], group_id: str) -> None:
    reply = await host.ask(lambda reply_id: DeleteGroups(reply_id=reply_id, group_ids=(group_id,)))
    assert isinstance(reply, DeleteGroupsReply)
    assert reply.errors == (ErrorCode.NONE,)


def run(scenario: Callable[[FakeOffsetsLog], Awaitable[None]]) -> None:
    async def whole() -> None:
        await scenario(FakeOffsetsLog())

    asyncio.run(whole())


def test_the_lowest_offsets_are_those_of_the_slowest_groups() -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        host = await loaded(host_on(log))
        await commit(host, "g", 7)
        await commit(host, "h", 5)
        response = await asked(host, ALL)
        assert list(response.shards) == [0]
        assert list(response.offsets) == [LowestOffset(topic="t", partition=0, offset=5, group_id="h")]
        response = await asked(host, NAMED)
        assert list(response.offsets) == [LowestOffset(topic="t", partition=0, offset=0, group_id="new")]
        host.shard.check_invariants()
        await host.close()

    run(scenario)


def test_a_former_owner_that_does_not_know_it_answers_for_no_shard() -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        former = await loaded(host_on(log))
        owner = await loaded(host_on(log, epoch=1))
        await commit(owner, "g", 3)
        assert former.is_loaded, "it was frozen"
        response = await asked(former, ALL)
        assert (list(response.shards), list(response.offsets)) == ([], [])
        assert len((await asked(owner, ALL)).offsets) == 1
        await former.close()
        await owner.close()

    run(scenario)


def test_a_deleted_group_releases_its_hold_also_at_the_next_owner() -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        topic_id = bytes(range(16))
        topics = FixedTopics(1, {"t": TopicInfo(topic_id, 1)}, holds={"g": {"t": topic_id}})
        hold = HeldTopic(topic="t", partitions=[0], group_ids=["g"], topic_id=topic_id)
        former = await loaded(host_on(log, topics=topics))
        await commit(former, "g", 7)
        assert [offset.offset for offset in (await asked(former, hold)).offsets] == [7]
        await delete(former, "g")
        owner = await loaded(host_on(log, epoch=1, topics=topics))
        response = await asked(owner, hold)
        assert (list(response.shards), list(response.offsets)) == ([0], [])
        await commit(owner, "g", 3)
        assert [offset.offset for offset in (await asked(owner, hold)).offsets] == [3]
        await former.close()
        await owner.close()

    run(scenario)


def test_shards_that_are_not_owned_or_not_loaded_are_not_in_the_answer() -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        host = await loaded(host_on(log))
        assert list((await asked(host, ALL, shards=(0, 3, 0))).shards) == [0]
        assert list((await asked(None, ALL)).shards) == []
        log.script.append(ErrorCode.NOT_ENOUGH_REPLICAS)
        loading = host_on(log, epoch=1)
        assert list((await asked(loading, ALL)).shards) == []
        await until(lambda: loading.is_loaded)
        await loading.close()
        await host.close()

    run(scenario)


def test_a_claim_that_is_appended_again_changes_no_group() -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        host = await loaded(host_on(log))
        await commit(host, "g", 7)
        for _ in range(3):
            await asked(host, ALL)
        again = await loaded(host_on(log, epoch=1))
        assert again.rules.state == host.rules.state
        assert again.rules.list_groups() == host.rules.list_groups()
        await host.close()
        await again.close()

    run(scenario)


def test_the_answer_is_bounded() -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        host = await loaded(host_on(log))
        await commit(host, "g" * 1_000, 7)
        (found,) = (await asked(host, ALL)).offsets
        assert found.group_id == "g" * GROUP_ID_MAX
        many = HeldTopic(topic="t", partitions=range(PARTITIONS_MAX + 1), all_groups=True)
        refused = await asked(host, many)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert refused.error_message == "LowestOffsets of 1001 partitions; expected at most 1000"
        await host.close()

    run(scenario)


def test_a_search_of_very_many_groups_lets_the_event_loop_run() -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        host = await loaded(host_on(log))
        for number in range(200):
            await commit(host, f"g{number}", number)
        many = HeldTopic(topic="t", partitions=range(PARTITIONS_MAX), all_groups=True)
        task = asyncio.create_task(asked(host, many))
        turns = 0
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        assert task.result().offsets[0].offset == 0
        assert turns > 40, "five groups in each turn"
        await host.close()

    run(scenario)
