"""Tests the coordinator with a real controller and broker: groups, offsets, takeover, bad input."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from klamm.errors import ErrorCode
from klamm.wire.v1.common_pb2 import TopicPartitions
from klamm.wire.v1.coordinator_pb2 import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    GroupOffset,
    GroupProtocol,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeavingMember,
    ListGroupsRequest,
    MemberAssignment,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from klamm_coordinator.group_shard.shard_topic import OFFSETS
from tests.support.coordinator_cluster import Cluster, cluster, error_of, eventually

GROUP = "orders"


def join_request(member_id: str = "", **fields: Any) -> JoinGroupRequest:
    wanted = {
        "group_id": GROUP,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [GroupProtocol(name="range", metadata=b"\x00\x00\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x00")],
        "client_id": "app",
    }
    return JoinGroupRequest(**(wanted | fields))


def commit_request(offset: int, *, partition: int = 0, **fields: Any) -> OffsetCommitRequest:
    wanted = {
        "group_id": GROUP,
        "generation_id": -1,
        "offsets": [GroupOffset(topic="t", partition=partition, offset=offset, leader_epoch=3, metadata="note")],
    }
    return OffsetCommitRequest(**(wanted | fields))


async def stable_members(running: Cluster, count: int) -> list[str]:
    """Returns the members of a Stable group of `count` members in one generation, the leader first."""
    ids = []
    for _ in range(count):
        ids.append((await running.ask(GROUP, "join_group", join_request())).member_id)
    stub = await running.coordinator_of(GROUP)
    joins = [stub.join_group(join_request(member_id)) for member_id in ids]
    joined = await asyncio.gather(*joins)
    leader = joined[0].leader
    generation_id = joined[0].generation_id
    assert {one.error_code for one in joined} == {0}
    syncs = [
        stub.sync_group(
            SyncGroupRequest(
                group_id=GROUP,
                generation_id=generation_id,
                member_id=member_id,
                assignments=[MemberAssignment(member_id=one, assignment=one.encode()) for one in ids]
                if member_id == leader
                else [],
            )
        )
        for member_id in ids
    ]
    for member_id, synced in zip(ids, await asyncio.gather(*syncs), strict=True):
        assert (synced.error_code, synced.assignment) == (0, member_id.encode())
    return sorted(ids, key=lambda member_id: member_id != leader)


async def heartbeat(running: Cluster, member_id: str, generation_id: int) -> int:
    request = HeartbeatRequest(group_id=GROUP, generation_id=generation_id, member_id=member_id)
    return (await running.ask(GROUP, "heartbeat", request)).error_code


async def generation_of(running: Cluster) -> int:
    described = await running.ask(GROUP, "describe_groups", DescribeGroupsRequest(group_ids=[GROUP]))
    return described.groups[0].generation_id


async def committed(running: Cluster, partition: int = 0, group_id: str = GROUP) -> int:
    request = OffsetFetchRequest(group_id=group_id, topics=[TopicPartitions(topic="t", partitions=[partition])])
    return (await running.ask(group_id, "offset_fetch", request)).offsets[0].offset


def test_a_group_is_joined_described_listed_and_deleted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as running:
            leader, follower = await stable_members(running, 2)
            generation_id = await generation_of(running)
            in_group = {"generation_id": generation_id, "member_id": follower}
            response = await running.ask(GROUP, "offset_commit", commit_request(42, **in_group))
            assert error_of(response) == 0

            described = (await running.ask(GROUP, "describe_groups", DescribeGroupsRequest(group_ids=[GROUP]))).groups[
                0
            ]
            assert (described.state, described.protocol_name, described.leader) == ("Stable", "range", leader)
            assert {member.client_host for member in described.members} == {"/127.0.0.1"}
            listed = await running.ask(GROUP, "list_groups", ListGroupsRequest(states=["stable"]))
            assert [group.group_id for group in listed.groups] == [GROUP]

            refused = await running.ask(GROUP, "delete_groups", DeleteGroupsRequest(group_ids=[GROUP]))
            assert error_of(refused) == ErrorCode.NON_EMPTY_GROUP
            leaving = [LeavingMember(member_id=member_id) for member_id in (leader, follower)]
            left = await running.ask(GROUP, "leave_group", LeaveGroupRequest(group_id=GROUP, members=leaving))
            assert [member.error_code for member in left.members] == [0, 0]

            assert await committed(running) == 42
            deleted = await running.ask(GROUP, "delete_groups", DeleteGroupsRequest(group_ids=[GROUP, "other"]))
            assert [result.error_code for result in deleted.results] == [0, ErrorCode.GROUP_ID_NOT_FOUND]
            assert await committed(running) == -1

    asyncio.run(scenario())


def test_a_crashed_coordinator_comes_back_with_its_members_generation_and_offsets(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as running:
            members = await stable_members(running, 2)
            generation_id = await generation_of(running)
            in_group = {"generation_id": generation_id, "member_id": members[1]}
            await running.ask(GROUP, "offset_commit", commit_request(42, **in_group))

            former = running.coordinators.pop(1)
            await former.crash()
            await running.start_coordinator(1, port=former.port)

            for member_id in members:
                assert await heartbeat(running, member_id, generation_id) == 0
            assert await generation_of(running) == generation_id
            fetched = await running.ask(GROUP, "offset_fetch", OffsetFetchRequest(group_id=GROUP, all_topics=True))
            (stored,) = fetched.offsets
            assert (stored.offset, stored.leader_epoch, stored.metadata) == (42, 3, "note")
            assert error_of(await running.ask(GROUP, "offset_commit", commit_request(43, **in_group))) == 0

    asyncio.run(scenario())


def test_a_coordinator_that_gave_up_a_shard_answers_not_coordinator(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as running:
            await running.ask(GROUP, "offset_commit", commit_request(1))
            await running.start_coordinator(2)
            groups = [f"group-{number}" for number in range(20)]
            for group_id in groups:
                response = await running.ask(group_id, "offset_commit", commit_request(7, group_id=group_id))
                assert error_of(response) == 0

            answers = [await running.coordinator(1).offset_fetch(OffsetFetchRequest(group_id=g)) for g in groups]
            assert {answer.error_code for answer in answers} == {0, ErrorCode.NOT_COORDINATOR}

            await running.coordinators.pop(1).crash()
            for group_id in groups:
                assert await committed(running, group_id=group_id) == 7

    asyncio.run(scenario())


def test_a_graceful_stop_hands_the_shards_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as running:
            await running.start_coordinator(2)
            await running.ask(GROUP, "offset_commit", commit_request(5))

            await running.coordinators.pop(1).stop()

            assert await committed(running) == 5

    asyncio.run(scenario())


def test_a_parked_join_gets_not_coordinator_when_its_coordinator_stops(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, **{"group.initial.rebalance.delay.ms": "60000"}) as running:
            member_id = (await running.ask(GROUP, "join_group", join_request())).member_id
            stub = await running.coordinator_of(GROUP)
            parked = asyncio.ensure_future(stub.join_group(join_request(member_id, rebalance_timeout_ms=100_000)))
            await eventually(lambda: state_of(running))

            await running.coordinators[1].server.stop()

            assert (await parked).error_code == ErrorCode.NOT_COORDINATOR

    async def state_of(running: Cluster) -> bool | None:
        described = await running.ask(GROUP, "describe_groups", DescribeGroupsRequest(group_ids=[GROUP]))
        return True if described.groups[0].state == "PreparingRebalance" else None

    asyncio.run(scenario())


def test_a_member_whose_session_times_out_is_removed_without_any_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as running:
            request = join_request(session_timeout_ms=2_000)
            member_id = (await running.ask(GROUP, "join_group", request)).member_id
            stub = await running.coordinator_of(GROUP)
            joined = await stub.join_group(join_request(member_id, session_timeout_ms=2_000))
            await stub.sync_group(
                SyncGroupRequest(group_id=GROUP, generation_id=joined.generation_id, member_id=member_id)
            )

            async def is_empty() -> bool | None:
                described = await stub.describe_groups(DescribeGroupsRequest(group_ids=[GROUP]))
                return True if described.groups[0].state == "Empty" else None

            assert await eventually(is_empty)

    asyncio.run(scenario())


def test_a_commit_waits_until_the_broker_has_restarted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as running:
            await running.ask(GROUP, "offset_commit", commit_request(1))
            await running.restart_broker()

            assert error_of(await running.ask(GROUP, "offset_commit", commit_request(2))) == 0
            assert await committed(running) == 2

    asyncio.run(scenario())


def test_offsets_of_a_deleted_topic_are_deleted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as running:
            await running.ask(GROUP, "offset_commit", commit_request(9))
            await running.delete_topic("t")

            async def is_gone() -> bool | None:
                return True if await committed(running) == -1 else None

            assert await eventually(is_gone)
            response = await running.ask(GROUP, "offset_commit", commit_request(9))
            assert error_of(response) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(scenario())


def test_a_coordinator_that_lost_its_shard_cannot_append_a_commit(tmp_path: Path) -> None:
    """The replaced owner believes that it still owns the shard, and writes with its old epoch."""

    async def scenario() -> None:
        async with cluster(tmp_path) as running:
            await running.ask(GROUP, "offset_commit", commit_request(1))
            # Other shards may still be loading.
            host = next(
                host
                for host in running.coordinators[1].server.coordinator.group_shards
                if (shard := host.loaded_shard) and GROUP in shard.rules.classic.groups
            )
            await running.claim_for_a_successor(OFFSETS, host.number)

            response = await running.coordinator(1).offset_commit(commit_request(2))

            assert error_of(response) == ErrorCode.NOT_COORDINATOR
            assert not host.is_loaded

    asyncio.run(scenario())


BAD_REQUESTS = [
    ("join_group", join_request(group_id=""), ErrorCode.INVALID_GROUP_ID),
    ("join_group", join_request(group_id="g" * 40_000), ErrorCode.INVALID_GROUP_ID),
    ("join_group", join_request(session_timeout_ms=99), ErrorCode.INVALID_SESSION_TIMEOUT),
    ("join_group", join_request(session_timeout_ms=2_000_000), ErrorCode.INVALID_SESSION_TIMEOUT),
    ("join_group", join_request(rebalance_timeout_ms=-1), ErrorCode.INVALID_REQUEST),
    ("join_group", join_request(client_id="c" * 40_000), ErrorCode.INVALID_REQUEST),
    (
        "join_group",
        join_request(protocols=[GroupProtocol(name="range", metadata=b"x" * 300_000)]),
        ErrorCode.INVALID_REQUEST,
    ),
    ("join_group", join_request(protocols=[GroupProtocol(name="range")] * 2), ErrorCode.INVALID_REQUEST),
    ("join_group", join_request(protocols=[]), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ("join_group", join_request("stranger"), ErrorCode.UNKNOWN_MEMBER_ID),
    ("sync_group", SyncGroupRequest(group_id=GROUP, member_id="stranger"), ErrorCode.UNKNOWN_MEMBER_ID),
    ("sync_group", SyncGroupRequest(), ErrorCode.INVALID_GROUP_ID),
    ("heartbeat", HeartbeatRequest(group_id=GROUP, member_id="stranger"), ErrorCode.UNKNOWN_MEMBER_ID),
    ("heartbeat", HeartbeatRequest(), ErrorCode.INVALID_GROUP_ID),
    ("leave_group", LeaveGroupRequest(), ErrorCode.INVALID_GROUP_ID),
    ("offset_commit", commit_request(1, group_id=""), ErrorCode.INVALID_GROUP_ID),
    ("offset_commit", commit_request(1, generation_id=5, member_id="m"), ErrorCode.ILLEGAL_GENERATION),
    ("offset_commit", commit_request(1, partition=4), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ("offset_commit", commit_request(1, partition=-1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (
        "offset_commit",
        commit_request(0, offsets=[GroupOffset(topic="t", offset=1, metadata="x" * 5_000)]),
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ),
    ("offset_fetch", OffsetFetchRequest(), ErrorCode.INVALID_GROUP_ID),
    ("offset_delete", OffsetDeleteRequest(), ErrorCode.INVALID_GROUP_ID),
    ("offset_delete", OffsetDeleteRequest(group_id=GROUP), ErrorCode.GROUP_ID_NOT_FOUND),
    ("describe_groups", DescribeGroupsRequest(group_ids=[""]), ErrorCode.INVALID_GROUP_ID),
    ("describe_groups", DescribeGroupsRequest(group_ids=[GROUP]), ErrorCode.GROUP_ID_NOT_FOUND),
    ("delete_groups", DeleteGroupsRequest(group_ids=[""]), ErrorCode.INVALID_GROUP_ID),
    ("delete_groups", DeleteGroupsRequest(group_ids=[GROUP]), ErrorCode.GROUP_ID_NOT_FOUND),
]


def test_bad_requests_get_their_error_code_and_the_coordinator_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as running:
            for rpc, request, code in BAD_REQUESTS:
                response = await running.ask(GROUP, rpc, request)
                assert error_of(response) == code, (rpc, request, response)
            assert error_of(await running.ask(GROUP, "offset_commit", commit_request(1))) == 0

    asyncio.run(scenario())


def test_a_coordinator_without_shards_answers_not_coordinator(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as running:
            stub = running.coordinator(1)
            response = await stub.offset_fetch(OffsetFetchRequest(group_id=GROUP))
            assert response.error_code == ErrorCode.NOT_COORDINATOR
            assert list((await stub.list_groups(ListGroupsRequest())).groups) == []

    asyncio.run(scenario())


@pytest.mark.parametrize("commit_count", [2_000])
def test_many_commits_at_once_share_batches(tmp_path: Path, commit_count: int) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as running:
            await running.ask(GROUP, "offset_commit", commit_request(0))
            stub = await running.coordinator_of(GROUP)
            requests = [commit_request(number, partition=number % 4) for number in range(commit_count)]
            responses = await asyncio.gather(*(stub.offset_commit(request) for request in requests))
            assert {error_of(response) for response in responses} == {0}
            assert await committed(running, 3) == commit_count - 1

    asyncio.run(scenario())


def test_a_client_outside_the_group_commits_without_a_generation_and_a_leader_epoch(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as running:
            offset = GroupOffset(topic="t", partition=0, offset=5)
            request = OffsetCommitRequest(group_id=GROUP, offsets=[offset])
            assert error_of(await running.ask(GROUP, "offset_commit", request)) == 0
            wanted = OffsetFetchRequest(group_id=GROUP, topics=[TopicPartitions(topic="t", partitions=[0])])
            [stored] = (await running.ask(GROUP, "offset_fetch", wanted)).offsets
            assert (stored.offset, stored.leader_epoch) == (5, -1)

    asyncio.run(scenario())
