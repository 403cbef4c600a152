"""Tests QuorumLogs on real stores and real time, with an in-memory network that the test can cut."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import threading
from pathlib import Path

import pytest

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.wire.v1.metadata_pb2 import (
    CONFIG_RESOURCE_TYPE_BROKER,
    ConfigRecord,
    MetadataRecord,
    ProducerIdsRecord,
)
from klamm_controller.log import store_writer
from klamm_controller.log.database import DiskFullError
from klamm_controller.log.quorum_log import QuorumLog
from klamm_controller.log.raft_store import RaftStore
from klamm_controller.log.snapshot import image_of_snapshot
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import ENTRY_OVERHEAD_BYTES, ReplicaKey, Voter
from klamm_controller.raft.raft_log import START
from klamm_controller.raft.settings import RaftSettings
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay
from klamm_server.runtime.clock import SystemClock
from tests.support.waiting import patience

NotControllerError = EXCEPTIONS[ErrorCode.NOT_CONTROLLER]


def record(number: int) -> MetadataRecord:
    return MetadataRecord(producer_ids=ProducerIdsRecord(next_producer_id=number))


class Store(RaftStore):
    """A store whose writes fail while `error` is set. `groups` has the sizes of the writes."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.error: BaseException | None = None
        self.refused = threading.Semaphore(0)
        self.groups: list[int] = []

    def write(self, persists):
        if self.error is not None:
            self.refused.release()
            raise self.error
        self.groups.append(sum(len(persist.entries) for persist in persists))
        super().write(persists)


class Node:
    """A listener that replays, and its log."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.me = ReplicaKey(node_id, "")
        self.store = Store(cluster.directory / str(node_id))
        self.store.begin(cluster.voters)
        stored = self.store.load()
        self.image = MetadataImage.empty()
        if stored.snapshot != START:
            self.image = image_of_snapshot(self.store.read_snapshot(stored.snapshot))
        self.told = []
        self.changed = cluster.changed
        self.failures = []
        self.log = QuorumLog(
            self.store,
            stored,
            me=self.me,
            end_index=self.image.end_index,
            settings=cluster.settings,
            snapshot_interval_bytes=cluster.snapshot_interval_bytes,
            send=cluster.send,
            clock=SystemClock(),
            rng=random.Random(node_id),
            on_failure=lambda story, error: self.failures.append(error),
        )
        self.log.start(self)

    def on_committed(self, entries):
        for entry in entries:
            assert entry.base_index == self.image.end_index
            self.image = replay(self.image, entry.records, entry.end_index)
        self.changed.set()

    def on_restored(self, image):
        self.image = image
        self.told.append("restored")
        self.changed.set()

    def on_new_term(self):
        self.told.append("new term")

    def on_snapshot_due(self):
        self.told.append("snapshot due")
        self.log.save_snapshot(self.image)

    def on_claimed(self):
        self.told.append("claimed")
        self.changed.set()

    def on_resigned(self):
        self.told.append("resigned")
        self.changed.set()


class Cluster:
    def __init__(self, directory: Path, count: int, *, snapshot_interval_bytes: int = 1 << 30, **changes: int) -> None:
        self.directory = directory
        self.voters = VoterSet(Voter(ReplicaKey(node_id, ""), "") for node_id in range(1, count + 1))
        self.settings = RaftSettings(
            retained_entries=0,
            snapshot_chunk_bytes=100,
            idle_no_op_interval_ms=0,
            observer_timeout_ms=2 * max(1_500, changes.get("election_timeout_ms", 0)),
            **changes,
        )
        self.snapshot_interval_bytes = snapshot_interval_bytes
        self.changed = asyncio.Event()
        self.nodes: dict[int, Node] = {}
        self.cut_off: set[int] = set()
        for voter in self.voters.keys:
            self.start(voter.node_id)

    def start(self, node_id: int) -> Node:
        self.nodes[node_id] = Node(self, node_id)
        return self.nodes[node_id]

    async def stop(self, node_id: int) -> None:
        node = self.nodes[node_id]
        await node.log.stop()
        del self.nodes[node_id]
        assert node.failures == []

    def send(self, message) -> None:
        def arrive() -> None:
            ends = {message.sender.node_id, message.receiver.node_id}
            if not ends & self.cut_off and message.receiver.node_id in self.nodes:
                self.nodes[message.receiver.node_id].log.receive(message)

        asyncio.get_running_loop().call_soon(arrive)

    async def until(self, predicate):
        """Waits until `predicate` is true. Returns its first true result."""
        async with asyncio.timeout(patience()):
            while not (found := predicate()):
                self.changed.clear()
                await self.changed.wait()
        return found

    async def leader(self, but: int = 0) -> Node:
        return await self.until(
            lambda: next((n for n in self.nodes.values() if n.log.is_leader and n.me.node_id != but), None)
        )

    async def append(self, node: Node, count: int, base: int = 0) -> int:
        """Appends entries. Returns after all connected nodes have them."""
        for number in range(base, base + count):
            end_index = node.log.append([record(number)]).end_index
            if number % 5 == 0:
                await self.until(lambda: node.image.end_index >= end_index)  # noqa: B023 - awaited here
        await self.agree(end_index)
        return end_index

    async def agree(self, end_index: int) -> None:
        def is_agreed() -> bool:
            nodes = [node for node_id, node in self.nodes.items() if node_id not in self.cut_off]
            return all(node.image.end_index >= end_index for node in nodes)

        await self.until(is_agreed)


def running(directory: Path, count: int, body, **settings) -> None:
    async def run() -> None:
        cluster = Cluster(directory, count, **settings)
        try:
            await body(cluster)
        finally:
            await asyncio.gather(*(cluster.stop(node_id) for node_id in cluster.nodes))

    asyncio.run(run())


def test_a_single_voter_elects_itself_at_once_and_continues_its_log_after_a_restart(tmp_path):
    async def life(cluster):
        # An election timeout would take longer than the test may.
        node = await cluster.leader()
        assert node.told == ["new term", "claimed"] if node.log.term == 1 else node.told[-1] == "claimed"
        assert node.image.end_index == 2 * (node.log.term - 1)
        number = 10 * node.log.term
        first, second = node.log.append([record(number)]), node.log.append([record(number + 1)])
        assert (second.term, second.base_index) == (node.log.term, first.end_index)
        await cluster.agree(second.end_index)
        await node.log.confirm_leadership()
        assert node.store.groups[-1] == 2, "appends of one turn share a write"

    for _ in range(3):
        running(tmp_path, 1, life, election_timeout_ms=60_000)


def test_a_follower_refuses_appends_and_quorum_status_with_not_controller(tmp_path):
    async def body(cluster):
        leader = await cluster.leader()
        for node in cluster.nodes.values():
            if node is leader:
                continue
            with pytest.raises(NotControllerError):
                node.log.append([record(1)])
            with pytest.raises(NotControllerError):
                node.log.quorum.status()
            with pytest.raises(NotControllerError):
                await node.log.confirm_leadership()
        await cluster.append(leader, 3)
        assert [replica.node_id for replica in leader.log.quorum.status().replicas] == [1, 2, 3]

    running(tmp_path, 3, body)


def test_a_leader_that_is_cut_off_resigns_and_drops_its_uncommitted_records(tmp_path):
    async def body(cluster):
        former = await cluster.leader()
        end_index = await cluster.append(former, 3)
        cluster.cut_off = {former.me.node_id}
        former.log.append([record(666)])
        reading = asyncio.ensure_future(former.log.confirm_leadership())
        leader = await cluster.leader(but=former.me.node_id)
        await cluster.append(leader, 4, base=100)
        await cluster.until(lambda: "resigned" in former.told)
        with pytest.raises(NotControllerError):
            await reading
        assert former.image.end_index == end_index
        cluster.cut_off = set()
        await cluster.agree(leader.image.end_index)
        assert former.image == leader.image
        assert former.told[-2:] == ["resigned", "new term"]

    running(tmp_path, 3, body)


def test_a_follower_far_behind_gets_a_snapshot_and_continues_from_it_after_a_restart(tmp_path):
    async def body(cluster):
        leader = await cluster.leader()
        away = next(node_id for node_id in cluster.nodes if node_id != leader.me.node_id)
        await cluster.append(leader, 3)
        await cluster.stop(away)
        await cluster.append(leader, 80, base=10)
        back = cluster.start(away)
        await cluster.agree(leader.image.end_index)
        assert back.told.count("restored") == 1
        assert back.image == leader.image
        await cluster.append(leader, 3, base=200)
        await cluster.stop(away)
        again = cluster.start(away)
        await cluster.append(leader, 1, base=300)
        assert again.told.count("restored") == 0
        assert again.image == leader.image

    running(tmp_path, 3, body, snapshot_interval_bytes=1_000)


def test_a_big_snapshot_is_rewritten_only_when_the_log_has_grown_to_its_size(tmp_path):
    interval_bytes, big_bytes = 500, 10_000

    async def body(cluster):
        leader = await cluster.leader()
        big = ConfigRecord(resource_type=CONFIG_RESOURCE_TYPE_BROKER, name="big", value="x" * big_bytes)
        leader.log.append([MetadataRecord(config=big)])
        for number in itertools.count():
            await cluster.append(leader, 1, base=number)
            if leader.store.snapshot_size_bytes > big_bytes:
                break
        batches = [leader.log.append([record(following)]) for following in range(number + 1, number + 101)]
        await cluster.agree(batches[-1].end_index)
        log_bytes = sum(ENTRY_OVERHEAD_BYTES + batch.ByteSize() for batch in batches)
        assert 2 * interval_bytes < log_bytes < big_bytes
        assert leader.told.count("snapshot due") == 1

    running(tmp_path, 1, body, snapshot_interval_bytes=interval_bytes)


def test_a_leader_that_stops_hands_over_leadership(tmp_path, caplog):
    async def body(cluster):
        leader = await cluster.leader()
        await cluster.append(leader, 2)
        await cluster.stop(leader.me.node_id)
        assert "could not hand over" not in caplog.text
        following = await cluster.leader()
        await cluster.append(following, 2, base=10)

    running(tmp_path, 3, body)


def test_a_leader_with_a_full_disk_loses_leadership_and_catches_up_when_there_is_space(tmp_path, monkeypatch):
    monkeypatch.setattr(store_writer, "FULL_DISK_RETRY_S", 0.05)

    async def body(cluster):
        full = await cluster.leader()
        full.store.error = DiskFullError("no space")
        entry = full.log.append([record(1)])
        leader = await cluster.leader(but=full.me.node_id)
        await cluster.until(lambda: leader.image.end_index == entry.end_index)
        assert full.image.end_index == 0, "nothing is shown that could be forgotten"
        full.store.error = None
        await cluster.append(leader, 3, base=10)
        assert full.image == leader.image

    running(tmp_path, 3, body)


def test_a_single_voter_with_a_full_disk_retries_the_write_and_commits_nothing_meanwhile(tmp_path, monkeypatch):
    monkeypatch.setattr(store_writer, "FULL_DISK_RETRY_S", 0.001)

    async def body(cluster):
        node = await cluster.leader()
        node.store.error = DiskFullError("no space")
        entry = node.log.append([record(1)])
        for _ in range(3):
            await asyncio.to_thread(node.store.refused.acquire)
        assert node.image.end_index == 0
        node.store.error = None
        await cluster.agree(entry.end_index)
        node.store.error = DiskFullError("no space")
        node.log.append([record(2)])
        await asyncio.to_thread(node.store.refused.acquire)

    running(tmp_path, 1, body)
    with contextlib.closing(RaftStore(tmp_path / "1")) as store:
        stored = store.load()
    assert [entry.kind.name for entry in stored.entries] == ["NO_OP", "DATA"]


def test_the_leader_writes_the_new_address_of_a_voter_to_the_log_of_all_voters(tmp_path):
    async def body(cluster):
        leader = await cluster.leader()
        moved = Voter(leader.me, "there:1")
        follower = next(node for node in cluster.nodes.values() if node is not leader)
        follower.log.quorum.update_voters([Voter(leader.me, "only leaders do that:1")])
        leader.log.quorum.update_voters([moved])
        await cluster.append(leader, 1)
        assert all(moved in list(node.log.quorum.voters) for node in cluster.nodes.values())

    running(tmp_path, 3, body)


def test_voters_can_be_removed_even_the_leader_and_added_again(tmp_path):
    async def body(cluster):
        leader = await cluster.leader()
        gone = next(node.me for node in cluster.nodes.values() if node is not leader)
        await leader.log.quorum.remove_voter(gone.node_id, gone.directory_id)
        assert gone not in leader.log.quorum.voters
        with pytest.raises(EXCEPTIONS[ErrorCode.VOTER_NOT_FOUND]):
            await leader.log.quorum.remove_voter(gone.node_id, gone.directory_id)
        with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_REQUEST], match="the address of controller"):
            await leader.log.quorum.add_voter(gone.node_id, gone.directory_id, "")
        await leader.log.quorum.add_voter(gone.node_id, gone.directory_id, "there:1")
        assert Voter(gone, "there:1") in list(leader.log.quorum.voters)
        with pytest.raises(EXCEPTIONS[ErrorCode.DUPLICATE_VOTER]):
            await leader.log.quorum.add_voter(gone.node_id, gone.directory_id, "there:1")
        former, me = leader, leader.me
        await former.log.quorum.remove_voter(me.node_id, me.directory_id)
        with pytest.raises(NotControllerError):
            await former.log.quorum.remove_voter(me.node_id, me.directory_id)
        await cluster.append(await cluster.leader(but=me.node_id), 1)

    running(tmp_path, 3, body)


def test_a_write_that_fails_for_another_reason_than_space_ends_the_process(tmp_path):
    async def run():
        cluster = Cluster(tmp_path, 1)
        node = await cluster.leader()
        node.store.error = OSError(5, "Input/output error")
        node.log.append([record(1)])
        await asyncio.to_thread(node.store.refused.acquire)
        await node.log.stop()
        assert node.failures == [node.store.error]
        assert node.image.end_index == 0

    asyncio.run(run())
