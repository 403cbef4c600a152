"""A slice of the simulation, every planted bug, and the simulated disk and network."""

from __future__ import annotations

import random

import pytest

from klamm_controller.raft.effects import HardState, Persist, WriteSnapshotChunk
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import EntryKind, LogEntry, Message, ReplicaKey, SnapshotId, TimeoutNowRequest
from tests.sim.kit.model_tests import ModelTests
from tests.sim.kit.world import MS, World
from tests.sim.raftsim.decisions import Decision
from tests.sim.raftsim.disk import Disk, Image
from tests.sim.raftsim.model import RAFT
from tests.sim.raftsim.mutations import MUTATIONS
from tests.sim.raftsim.network import Network
from tests.sim.raftsim.options import Options
from tests.sim.raftsim.run import run_seed
from tests.sim.raftsim.shrink import kind_of, replay, shrink

REMOVED_WITH_A_NEWER_TERM = 20261137
"""A seed in which a voter stands for election in a new term, while the leader of the older term removes it."""
SNAPSHOT = SnapshotId(end_index=2, term=1)


class TestRaft(ModelTests):
    model = RAFT
    slice_seeds = 16
    different_seeds = (22, 20)


def test_a_removed_voter_with_a_newer_term_finds_the_leader() -> None:
    assert run_seed(REMOVED_WITH_A_NEWER_TERM).committed_count > 0


def test_a_failing_run_is_shrunk_to_fewer_decisions() -> None:
    decisions: list[Decision] = []
    with MUTATIONS["vote-for-shorter-log"].planted():
        with pytest.raises(AssertionError) as failure:
            run_seed(MUTATIONS["vote-for-shorter-log"].known_seed, decisions=decisions)
        kind = kind_of(failure.value)
        assert replay(MUTATIONS["vote-for-shorter-log"].known_seed, decisions) == kind
        kept = shrink(MUTATIONS["vote-for-shorter-log"].known_seed, decisions, kind, budget_s=5)
        assert replay(MUTATIONS["vote-for-shorter-log"].known_seed, kept) == kind
    assert len(kept) < len(decisions) / 2
    assert replay(MUTATIONS["vote-for-shorter-log"].known_seed, kept) is None, "without the bug nothing breaks"


def test_swarm_options_differ_between_seeds() -> None:
    drawn = [Options.draw(random.Random(seed)) for seed in range(100)]
    assert {options.crash_mean_ms > 0 for options in drawn} == {True, False}
    assert {options.partition_mean_ms > 0 for options in drawn} == {True, False}
    assert {options.voter_count for options in drawn} == {1, 2, 3, 4, 5}


def quiet_options() -> Options:
    """Any seed's, without the faults that the tests of disk and network bring about themselves."""
    return Options.draw(random.Random(1))


def entry(index: int, term: int = 1) -> LogEntry:
    return LogEntry(index, term, EntryKind.DATA, b"x")


def write(
    persist_id: int,
    *entries: LogEntry,
    hard_state: HardState | None = None,
    log_end_index: int | None = None,
    log_start_index: int | None = None,
    snapshot_chunk: WriteSnapshotChunk | None = None,
) -> Persist:
    return Persist(
        persist_id=persist_id,
        hard_state=hard_state,
        snapshot_chunk=snapshot_chunk,
        log_end_index=log_end_index,
        entries=entries,
        log_start_index=log_start_index,
    )


def chunk(position: int, data: bytes, *, is_last: bool) -> WriteSnapshotChunk:
    return WriteSnapshotChunk(
        snapshot=SNAPSHOT, voters=VoterSet().to_bytes(), position=position, data=data, is_last=is_last
    )


class TestImage:
    def test_an_image_truncates_the_log_before_it_adds_entries(self) -> None:
        image = Image(VoterSet())
        image.apply(write(1, entry(0), entry(1), entry(2)))
        image.apply(write(2, entry(1, term=2), log_end_index=1))
        assert [stored.term for stored in image.stored().entries] == [1, 2]

    def test_a_disk_image_has_a_snapshot_only_after_its_last_chunk(self) -> None:
        image = Image(VoterSet())
        image.apply(write(1, snapshot_chunk=chunk(0, b"ab", is_last=False)))
        assert image.stored().snapshot.end_index == 0
        image.apply(write(2, snapshot_chunk=chunk(0, b"cd", is_last=False)))
        image.apply(write(3, snapshot_chunk=chunk(2, b"e", is_last=True)))
        assert (image.stored().snapshot, image.snapshot_data, image.end_index) == (SNAPSHOT, b"cde", 2)

    def test_an_image_drops_entries_below_the_log_start(self) -> None:
        image = Image(VoterSet())
        image.apply(write(1, entry(0), entry(1), entry(2)))
        image.apply(write(2, log_start_index=2))
        assert [stored.index for stored in image.stored().entries] == [2]


class TestDisk:
    @pytest.fixture
    def world(self) -> World:
        return World(seed=1)

    @pytest.fixture
    def disk(self, world: World) -> Disk:
        disk = Disk(world, quiet_options(), VoterSet())
        disk.is_faulty = False
        disk.open(lambda writes: None, disk.crash)
        return disk

    def test_synced_entries_survive_a_crash(self, world: World, disk: Disk) -> None:
        disk.write(write(1, entry(0)))
        world.run_until(10 * MS)
        disk.crash()
        assert len(disk.durable.stored().entries) == 1

    def test_a_crash_keeps_a_prefix_of_the_unsynced_entries(self, world: World, disk: Disk) -> None:
        kept = set()
        for _ in range(50):
            disk.durable = Image(VoterSet())
            for index in range(3):
                disk.write(write(index + 1, entry(index)))
            disk.crash()
            kept.add(tuple(stored.index for stored in disk.durable.stored().entries))
        assert kept == {(), (0,), (0, 1), (0, 1, 2)}

    def test_a_sync_covers_the_writes_from_before_it_began(self, world: World, disk: Disk) -> None:
        told: list[list[int]] = []
        disk.open(lambda writes: told.append([w.persist_id for w in writes if isinstance(w, Persist)]), disk.crash)
        for persist_id in (1, 2, 3):
            disk.write(write(persist_id, entry(persist_id - 1)))
        world.run_until(10 * MS)
        assert told == [[1], [2, 3]]

    def test_a_crash_ends_the_sync_under_way(self, world: World, disk: Disk) -> None:
        told: list[object] = []
        disk.open(told.append, disk.crash)
        disk.write(write(1, entry(0)))
        disk.crash()
        world.run_until(10 * MS)
        assert told == []


class TestNetwork:
    @pytest.fixture
    def world(self) -> World:
        return World(seed=1)

    def message(self, sender: int, receiver: int) -> Message:
        return TimeoutNowRequest(sender=ReplicaKey(sender, "a"), receiver=ReplicaKey(receiver, "a"), term=1)

    def test_a_network_cut_drops_messages_in_one_direction_until_it_ends(self, world: World) -> None:
        arrived: list[Message] = []
        network = Network(world, quiet_options(), arrived.append)
        network.heal()
        network.cut([(1, 2)], duration_us=100 * MS)
        network.send(self.message(1, 2))
        network.send(self.message(2, 1))
        world.run_until(50 * MS)
        assert arrived == [self.message(2, 1)]
        world.run_until(100 * MS)
        network.send(self.message(1, 2))
        world.run_until(200 * MS)
        assert arrived[1:] == [self.message(1, 2)]

    def test_of_two_overlapping_network_cuts_the_longer_one_still_drops_messages(self, world: World) -> None:
        arrived: list[Message] = []
        network = Network(world, quiet_options(), arrived.append)
        network.heal()
        network.cut([(1, 2)], duration_us=100 * MS)
        network.cut([(1, 2)], duration_us=300 * MS)
        world.run_until(200 * MS)
        network.send(self.message(1, 2))
        world.run_until(250 * MS)
        assert arrived == []
