"""kill -9 of one of two coordinators: its groups go on at the other one, in the generation or epoch they are in.

Controller and broker live in the test's process, the coordinators are processes of their own. The same with a hundred
groups of ten members, and timed: bench/coordinator_failover.py."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from coordinator_cluster import HOST, Cluster, cluster
from coordinator_process import CoordinatorProcess
from group_members import ConsumerGroup, Group

GROUP_COUNT = 6
"""Of each protocol."""
MEMBER_COUNT = 3
COMMIT_INTERVAL_S = 0.1
UNAVAILABLE_MS_MAX = 10_000
"""A bound for a busy machine; what it takes on an idle one is in bench/RESULTS.md."""


async def until_each_committed_again(groups: list[Group]) -> float:
    """Returns from when on."""
    since_s = time.perf_counter()
    while not all(group.commits.acknowledged_s[-1:] > [since_s] for group in groups):
        for group in groups:
            group.check_alive()
        await asyncio.sleep(0.02)
    return since_s


async def until_each_member_was_heard_again(groups: list[Group]) -> None:
    """Two more heartbeats each: the first one may have been on its way already."""
    before = [group.heartbeat_counts() for group in groups]
    while any(
        now < then + 2
        for group, counts in zip(groups, before, strict=True)
        for now, then in zip(group.heartbeat_counts(), counts, strict=True)
    ):
        for group in groups:
            group.check_alive()
        await asyncio.sleep(0.02)


async def settled_groups(running: Cluster) -> list[Group]:
    servers = f"{HOST}:{running.broker.port}"
    groups = [
        make(servers, f"{make.protocol}-{number}", "t", MEMBER_COUNT, COMMIT_INTERVAL_S)
        for make in (Group, ConsumerGroup)
        for number in range(GROUP_COUNT)
    ]
    for group in groups:
        group.start()
    await asyncio.gather(*(group.wait_settled() for group in groups))
    for group in groups:
        group.start_commits()
    await until_each_committed_again(groups)
    return groups


@pytest.mark.slow
def test_members_keep_their_generation_and_assignment_when_their_coordinator_is_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, with_coordinator=False) as running:
            processes = {
                node_id: CoordinatorProcess(running.controller.port, tmp_path / f"coordinator-{node_id}.log", node_id)
                for node_id in (1, 2)
            }
            for process in processes.values():
                await process.start()
            groups = await settled_groups(running)
            before = [group.history() for group in groups]
            for victim, process in processes.items():
                hit = [group for group in groups if group.owner == victim]
                assert {group.protocol for group in hit} == {"classic", "consumer"}, f"coordinator {victim} owns {hit}"

                await process.kill()
                struck_s = await until_each_committed_again(groups)
                assert {group.owner for group in hit} == {3 - victim}
                assert max(group.commits.gap_ms(struck_s) for group in hit) < UNAVAILABLE_MS_MAX
                await until_each_member_was_heard_again([group for group in hit if isinstance(group, ConsumerGroup)])

                await process.start()
                while not any(group.owner == victim for group in groups):
                    await until_each_committed_again(groups)
            assert [group.history() for group in groups] == before
            for group in groups:
                promised = group.commits.offset
                assert await group.stored_offset() >= promised
                await group.close()
            for process in processes.values():
                assert await process.stop() == 0

    asyncio.run(scenario())
