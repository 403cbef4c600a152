"""Tests controllers that join and leave as processes (KIP-853): a quorum replaced completely, and a lost disk."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import signal
import time
from collections.abc import AsyncIterator

import pytest
from grpc import aio

from klamm import Admin, AsyncAdmin, Consumer, NewTopic, Producer
from klamm.admin import QuorumDescription, QuorumReplicaKind, ReplicaOfQuorum
from klamm.wire.v1.broker_pb2 import MetadataRequest
from klamm.wire.v1.broker_rpc import BROKER
from tests.support.controller_quorum import Quorum, quorum_processes
from tests.support.quorum_load import History, load
from tests.support.raw_stub import RawStub
from tests.support.server_process import ServerProcess
from tests.support.waiting import patience, until, wait_until


@contextlib.asynccontextmanager
async def administering(quorum: Quorum) -> AsyncIterator[AsyncAdmin]:
    """Yields an Admin after the quorum has a leader, and a broker for topics."""
    async with AsyncAdmin(bootstrap_servers=quorum.broker.address, retry_backoff_max_ms=100) as admin:
        await admin.create_topics([NewTopic("first", partition_count=1)])
        yield admin


async def replica(admin: AsyncAdmin, node_id: int, *, is_voter: bool) -> ReplicaOfQuorum:
    """Waits until the controller is listed as a voter, or as an observer, and returns its entry."""

    async def shown() -> ReplicaOfQuorum | None:
        for each in (await admin.describe_quorum()).replicas:
            is_controller = each.kind is QuorumReplicaKind.CONTROLLER
            if is_controller and (each.node_id, each.is_voter) == (node_id, is_voter):
                return each
        return None

    found: ReplicaOfQuorum = await until(shown, pause_s=0.05)
    return found


async def add(admin: AsyncAdmin, node_id: int) -> None:
    observer = await replica(admin, node_id, is_voter=False)
    await admin.add_raft_voter(node_id, observer.directory_id)


async def remove(admin: AsyncAdmin, node_id: int) -> None:
    voter = await replica(admin, node_id, is_voter=True)
    await admin.remove_raft_voter(node_id, voter.directory_id)


async def broker_knows(quorum: Quorum, node_ids: set[int]) -> None:
    """Waits until the broker knows these controllers.

    Servers learn the controllers from their heartbeats, and must do so before the last one that they know has left.
    """
    ports = {quorum.controllers[node_id].port for node_id in node_ids}
    async with aio.insecure_channel(quorum.broker.address) as channel:
        broker = RawStub(channel, BROKER)

        async def knows() -> bool:
            metadata = await broker.metadata(MetadataRequest())
            return ports <= {node.endpoint.port for node in metadata.controllers}

        await until(knows, pause_s=0.05)


def voter_ids(described: QuorumDescription) -> list[int]:
    return [replica.node_id for replica in described.replicas if replica.is_voter]


async def stopped(process: ServerProcess) -> None:
    assert await asyncio.to_thread(process.end, signal.SIGTERM) == 0


async def restarted(server: ServerProcess) -> None:
    """Kills the server, starts it, and waits until it has registered again."""

    def registrations() -> int:
        return server.log_path.read_text().count(" registered epoch=")

    before = registrations()
    server.end(signal.SIGKILL)
    server.start()
    await until(lambda: asyncio.to_thread(lambda: registrations() > before), pause_s=0.05)


async def followers_at_the_end(admin: AsyncAdmin) -> None:
    """Waits until the broker and the coordinator follow the present leader and have everything."""

    async def follow() -> bool:
        replicas = (await admin.describe_quorum()).replicas
        kinds = {replica.kind for replica in replicas if not replica.is_voter and not replica.lag}
        return {QuorumReplicaKind.BROKER, QuorumReplicaKind.COORDINATOR} <= kinds

    await until(follow, pause_s=0.05)


@pytest.mark.slow
def test_two_new_controllers_replace_all_three_voters_under_load(tmp_path: pathlib.Path) -> None:
    async def replace(quorum: Quorum, history: History) -> None:
        async with administering(quorum) as admin:
            async with load(quorum, history):
                for node_id in (4, 5):
                    quorum.joining(node_id).start()
                    await add(admin, node_id)
                assert voter_ids(await admin.describe_quorum()) == [1, 2, 3, 4, 5]
                await broker_knows(quorum, {4, 5})
                leader_id = (await admin.describe_quorum()).leader_id
                # Remove the leader last, unless it stays in the quorum.
                *first, last = sorted((1, 2, 3), key=lambda each: each == leader_id)
                for node_id in first:
                    await remove(admin, node_id)
                    await stopped(quorum.controllers.pop(node_id))
                await remove(admin, last)
                # Only one controller of its configuration still runs. This one is no voter any more, but knows the
                # others.
                await restarted(quorum.coordinator)
                await stopped(quorum.controllers.pop(last))
                since_s = time.monotonic()
                assert voter_ids(await admin.describe_quorum()) == [4, 5]
                await history.wait_for_acknowledgement(since_s)
            await followers_at_the_end(admin)
            described = await admin.describe_cluster()
            assert [controller.port for controller in described.controllers] == [
                quorum.controllers[node_id].port for node_id in (4, 5)
            ]

    with quorum_processes(tmp_path, metadata_log_max_record_bytes_between_snapshots="20000") as quorum:
        quorum.start()
        history = History()
        asyncio.run(replace(quorum, history))
        servers = {"bootstrap_servers": quorum.broker.address}
        with Producer(**servers) as producer:
            producer.send("first", b"after").result(timeout=patience())
        with Consumer(**servers, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["first"])
            records = wait_until(lambda: consumer.poll(timeout_ms=200), "no record comes", pause_s=0)
            assert [each.value for batch in records.values() for each in batch] == [b"after"]
        assert history.acknowledged_s
        # Both new controllers are needed for a majority, and they restart without help.
        for node_id in (4, 5):
            quorum.controllers[node_id].end(signal.SIGKILL)
            quorum.controllers[node_id].start()
        quorum.wait_leader()
        with Admin(**servers, retry_backoff_max_ms=100) as admin:
            admin.create_topics([NewTopic("last", partition_count=1)])


@pytest.mark.slow
def test_a_voter_with_a_wiped_disk_is_an_observer_until_it_is_removed_and_added(tmp_path: pathlib.Path) -> None:
    """If it were still a voter, it could elect an empty log together with the voter that was away."""

    async def run(quorum: Quorum) -> None:
        history = History()
        async with administering(quorum) as admin:
            leader_id = (await asyncio.to_thread(quorum.wait_leader)).node_id
            away, wiped = (node_id for node_id in quorum.controllers if node_id != leader_id)
            async with load(quorum, history):
                old = await replica(admin, wiped, is_voter=True)
                quorum.controllers[away].end(signal.SIGKILL)
                since_s = time.monotonic()
                await history.wait_for_acknowledgement(since_s)
            # Only the leader and the controller that is wiped now have the last acknowledged changes.
            for node_id in (leader_id, wiped):
                quorum.controllers[node_id].end(signal.SIGKILL)
            quorum.wipe(wiped)
            quorum.controllers[away].start()
            quorum.controllers[wiped].start()
            with pytest.raises(AssertionError, match="no leader"):
                await asyncio.to_thread(quorum.wait_leader, timeout_s=4)
            quorum.controllers[leader_id].start()
            async with load(quorum, history, prefix="again"):
                await asyncio.to_thread(quorum.wait_leader)
                observer = await replica(admin, wiped, is_voter=False)
                assert observer.directory_id != old.directory_id
                assert (await replica(admin, wiped, is_voter=True)).directory_id == old.directory_id
                await admin.remove_raft_voter(wiped, old.directory_id)
                await admin.add_raft_voter(wiped, observer.directory_id)
            assert voter_ids(await admin.describe_quorum()) == [1, 2, 3]
        assert "so the controller is only an observer" in quorum.controllers[wiped].log_path.read_text()

    with quorum_processes(tmp_path) as quorum:
        quorum.start()
        asyncio.run(run(quorum))


@pytest.mark.slow
def test_a_quorum_of_five_commits_after_two_leaders_were_killed(tmp_path: pathlib.Path) -> None:
    async def run(quorum: Quorum) -> None:
        history = History()
        async with administering(quorum) as admin:
            async with load(quorum, history):
                for _ in range(2):
                    leader = await asyncio.to_thread(quorum.wait_leader)
                    leader.end(signal.SIGKILL)
                    await asyncio.to_thread(quorum.wait_leader)
                    await history.wait_for_acknowledgement(time.monotonic())
            assert voter_ids(await admin.describe_quorum()) == [1, 2, 3, 4, 5]

    with quorum_processes(tmp_path, size=5) as quorum:
        quorum.start()
        quorum.wait_leader()
        asyncio.run(run(quorum))


@pytest.mark.slow
def test_the_new_address_of_a_moved_voter_is_stored_by_the_other_controllers(tmp_path: pathlib.Path) -> None:
    async def run(quorum: Quorum) -> None:
        async with administering(quorum) as admin:
            leader = await asyncio.to_thread(quorum.wait_leader)
            moving, staying = (controller for controller in quorum.controllers if controller != leader.node_id)
            await stopped(quorum.controllers[moving])
            quorum.moved(moving).start()
            ports = {controller.port for controller in quorum.controllers.values()}

            async def is_known() -> bool:
                return {controller.port for controller in (await admin.describe_cluster()).controllers} == ports

            await until(is_known, pause_s=0.05)
            # The moved controller is needed now. The others know its new port only because it told them and they stored
            # it.
            await stopped(quorum.controllers[staying])
            await admin.create_topics([NewTopic("second", partition_count=1)])

    with quorum_processes(tmp_path) as quorum:
        quorum.start()
        asyncio.run(run(quorum))
