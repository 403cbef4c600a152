"""Tests kill -9 of a coordinator under load: members stay in their generation, and offsets never go back.

Controller and broker run in the test's process. The coordinator runs in a process of its own, always on the same port.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from klamm.wire.v1.common_pb2 import TopicPartitions
from klamm.wire.v1.coordinator_pb2 import (
    DescribeGroupsRequest,
    GroupOffset,
    GroupProtocol,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from tests.support import seeds
from tests.support.coordinator_cluster import Cluster, cluster, error_of
from tests.support.coordinator_process import CoordinatorProcess
from tests.support.violation import verdict

GROUP = "ledger"
KILL_COUNT = 4
COMMITTERS = 3
SEED = seeds.run_seed()
RERUN = f"TEST_SEED={SEED} python -m pytest {__file__}"


async def join(running: Cluster) -> tuple[str, int]:
    """Creates a group of one member. Returns the member and its generation."""
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=300_000,
        protocol_type="consumer",
        protocols=[GroupProtocol(name="range", metadata=b"")],
        client_id="app",
    )
    request.member_id = (await running.ask(GROUP, "join_group", request)).member_id
    joined = await running.ask(GROUP, "join_group", request)
    synced = await running.ask(
        GROUP,
        "sync_group",
        SyncGroupRequest(group_id=GROUP, generation_id=joined.generation_id, member_id=request.member_id),
    )
    assert synced.error_code == 0, synced
    return request.member_id, joined.generation_id


async def commit_for_ever(running: Cluster, partition: int, member: tuple[str, int], acked: list[int]) -> None:
    """Commits 1, 2, 3 and so on. Repeats each commit until it is acknowledged."""
    offset = 0
    while True:
        offset += 1
        request = OffsetCommitRequest(
            group_id=GROUP,
            member_id=member[0],
            generation_id=member[1],
            offsets=[GroupOffset(topic="t", partition=partition, offset=offset, leader_epoch=-1)],
        )
        response = await running.ask(GROUP, "offset_commit", request)
        assert error_of(response) == 0, (response, RERUN)
        acked[partition] = offset


async def check_nothing_is_lost(running: Cluster, member: tuple[str, int], acked: list[int]) -> None:
    promised = list(acked)
    wanted = OffsetFetchRequest(group_id=GROUP, topics=[TopicPartitions(topic="t", partitions=range(COMMITTERS))])
    fetched = await running.ask(GROUP, "offset_fetch", wanted)
    with verdict():
        for promise, stored in zip(promised, fetched.offsets, strict=True):
            assert stored.offset >= promise, (promised, fetched, RERUN)
    beat = HeartbeatRequest(group_id=GROUP, member_id=member[0], generation_id=member[1])
    assert (await running.ask(GROUP, "heartbeat", beat)).error_code == 0, RERUN
    described = await running.ask(GROUP, "describe_groups", DescribeGroupsRequest(group_ids=[GROUP]))
    assert (described.groups[0].state, described.groups[0].generation_id) == ("Stable", member[1]), RERUN


@pytest.mark.slow
def test_a_coordinator_killed_at_random_moments_loses_no_acknowledged_commit(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    print(RERUN)

    async def scenario() -> None:
        async with cluster(tmp_path, with_coordinator=False) as running:
            process = CoordinatorProcess(running.controller.port, tmp_path / "coordinator.log")
            await process.start()
            member = await join(running)
            acked = [0] * COMMITTERS
            committers = [
                asyncio.create_task(commit_for_ever(running, partition, member, acked))
                for partition in range(COMMITTERS)
            ]
            for _ in range(KILL_COUNT):
                before = sum(acked)
                await asyncio.sleep(rng.uniform(0.05, 0.4))
                await process.kill()
                await process.start()
                await check_nothing_is_lost(running, member, acked)
                while sum(acked) <= before:
                    done, _ = await asyncio.wait(committers, timeout=0.01)
                    assert not done, [task.exception() for task in done]
            for task in committers:
                task.cancel()
            await asyncio.gather(*committers, return_exceptions=True)
            await check_nothing_is_lost(running, member, acked)
            assert await process.stop() == 0

    asyncio.run(scenario())
