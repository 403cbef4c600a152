"""Tests kill -9 of one of two coordinators: the other one continues its groups and transactions.

Groups keep their generation or epoch, and transactional ids commit again, whatever state their transactions were in.
Controller and broker run in the test's process, and each coordinator in a process of its own.
bench/coordinator_failover.py measures the same with a hundred groups of ten members.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path

import pytest

from klamm import AsyncProducer, ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from tests.support.coordinator_cluster import HOST, Cluster, cluster
from tests.support.coordinator_process import CoordinatorProcess
from tests.support.group_members import ConsumerGroup, Group
from tests.support.waiting import until

GROUP_COUNT = 6
"""How many groups there are of each protocol."""
MEMBER_COUNT = 3
COMMIT_INTERVAL_S = 0.1
TRANSACTIONAL_ID_COUNT = 12
TRANSACTION_PAUSE_S = 0.05
"""The pause of a producer between transactions. It leaves the servers some CPU on two cores."""


class TransactionLoad:
    """Producers that commit until stopped. Each transaction has records of every partition and an offset."""

    def __init__(self, servers: str) -> None:
        self._begun_s = [0.0] * TRANSACTIONAL_ID_COUNT
        """When each transactional id began the last transaction that it has committed."""
        self._tasks = [
            asyncio.create_task(self._commit_for_ever(servers, number)) for number in range(TRANSACTIONAL_ID_COUNT)
        ]

    async def until_each_committed_one_begun_after(self, since_s: float) -> None:
        def have_committed() -> bool:
            for task in self._tasks:
                if task.done():
                    task.result()
            return min(self._begun_s) > since_s

        await until(have_committed, "not every transactional id commits", pause_s=0.02)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _commit_for_ever(self, servers: str, number: int) -> None:
        group = ConsumerGroupMetadata(f"reader-{number}")
        async with AsyncProducer(bootstrap_servers=servers, transactional_id=f"id-{number}", linger_ms=0) as producer:
            await producer.init_transactions()
            for offset in itertools.count():
                begun_s = time.perf_counter()
                await producer.begin_transaction()
                for partition in range(4):
                    await producer.send("t", value=b"", partition=partition)
                await producer.send_offsets_to_transaction({TopicPartition("t", 0): OffsetAndMetadata(offset)}, group)
                await producer.commit_transaction()
                self._begun_s[number] = begun_s
                await asyncio.sleep(TRANSACTION_PAUSE_S)


async def until_each_committed_again(groups: list[Group]) -> float:
    """Waits until each group has committed since this call. Returns the time of the call in seconds (perf_counter)."""
    since_s = time.perf_counter()

    def have_committed() -> bool:
        for group in groups:
            group.check_alive()
        return all(group.commits.acknowledged_s[-1:] > [since_s] for group in groups)

    await until(have_committed, "not every group commits", pause_s=0.02)
    return since_s


async def until_each_member_was_heard_again(groups: list[Group]) -> None:
    """Waits for two more heartbeats of each member, because the first may have been sent before the kill."""
    before = [group.heartbeat_counts() for group in groups]

    def were_heard() -> bool:
        for group in groups:
            group.check_alive()
        return all(
            now >= then + 2
            for group, counts in zip(groups, before, strict=True)
            for now, then in zip(group.heartbeat_counts(), counts, strict=True)
        )

    await until(were_heard, "not every member is heard", pause_s=0.02)


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
            transactions = TransactionLoad(f"{HOST}:{running.broker.port}")
            await transactions.until_each_committed_one_begun_after(0)
            for victim, process in processes.items():
                hit = [group for group in groups if group.owner == victim]
                assert {group.protocol for group in hit} == {"classic", "consumer"}, f"coordinator {victim} owns {hit}"

                await process.kill()
                killed_s = time.perf_counter()
                await transactions.until_each_committed_one_begun_after(killed_s)
                await until_each_committed_again(groups)
                assert {group.owner for group in hit} == {3 - victim}
                await until_each_member_was_heard_again([group for group in hit if isinstance(group, ConsumerGroup)])

                await process.start()
                while not any(group.owner == victim for group in groups):
                    await until_each_committed_again(groups)
            await transactions.close()
            assert [group.history() for group in groups] == before
            for group in groups:
                promised = group.commits.offset
                assert await group.stored_offset() >= promised
                await group.close()
            for process in processes.values():
                assert await process.stop() == 0

    asyncio.run(scenario())
