"""A slice of the simulated partition and every planted bug."""

from __future__ import annotations

import dataclasses
import random
from collections import deque

import pytest
import seeds
from isr_sim import MODEL
from isrsim.mutations import MUTATIONS
from isrsim.network import Network
from isrsim.options import Options
from isrsim.run import run_seed
from isrsim.sim_log import SimLog, SimLogConfig, encode
from raftsim.world import MS, World
from sim_runner import run_slice

SLICE_SEEDS = 80
KNOWN_SEEDS = {name: one.known_seed for name, one in MUTATIONS.items() if one.known_seed is not None}

LATE_REGISTRATION = 254390484
"""A broker's registration arrives when its next life is registered already."""
LATE_RESIGNATION = 6346
"""A call by which a replica resigned arrives after the one by which it resumed."""
LAST_LEADER_MOVED = 934804673
"""A partition is moved away from the last leader there was, and back to it, while nobody leads."""


def test_a_slice_of_seeds_violates_nothing() -> None:
    run_slice(MODEL, seeds.run_seed(), SLICE_SEEDS)


def test_a_broker_whose_registration_was_replaced_registers_again() -> None:
    trace: deque[str] = deque()
    drawn = Options.draw(random.Random(LATE_REGISTRATION))
    run_seed(LATE_REGISTRATION, trace, dataclasses.replace(drawn, full_disk_mean_ms=0))
    assert any("is not registered any more" in line for line in trace)


def test_a_replica_that_resumed_does_not_stay_resigned_by_a_late_call() -> None:
    run_seed(LATE_RESIGNATION)


def test_the_last_leader_there_was_is_not_moved_away_with_what_only_it_has() -> None:
    run_seed(LAST_LEADER_MOVED)


@pytest.mark.parametrize("name", KNOWN_SEEDS)
def test_planted_bugs_are_found(name: str) -> None:
    with MUTATIONS[name].planted(), pytest.raises(AssertionError):
        run_seed(KNOWN_SEEDS[name])


def test_stories_find_the_others() -> None:
    assert all(name in KNOWN_SEEDS or list(MODEL.stories(name)) for name in MUTATIONS)


@pytest.mark.parametrize("seed", sorted(set(KNOWN_SEEDS.values())))
def test_without_the_bugs_the_same_seeds_violate_nothing(seed: int) -> None:
    outcome = run_seed(seed)
    assert outcome.acknowledged_count > 0
    assert outcome.committed_count >= outcome.acknowledged_count


def test_a_seed_decides_everything() -> None:
    assert run_seed(3) == run_seed(3)
    assert run_seed(3) != run_seed(4)


def test_swarm_options_differ_between_seeds() -> None:
    drawn = [Options.draw(random.Random(seed)) for seed in range(100)]
    assert {options.crash_mean_ms > 0 for options in drawn} == {True, False}
    assert {options.partition_mean_ms > 0 for options in drawn} == {True, False}
    assert {options.reassignment_mean_ms > 0 for options in drawn} == {True, False}
    assert {options.full_disk_mean_ms > 0 for options in drawn} == {True, False}
    assert {options.partitions_per_turn for options in drawn} == {0, 1, 2}
    assert {options.replica_count for options in drawn} == {2, 3, 4, 5}


def test_chains_tell_logs_apart() -> None:
    one, other = SimLog(SimLogConfig(1)), SimLog(SimLogConfig(1))
    for log, last in ((one, 3), (other, 4)):
        log.append_as_follower(encode([(0, 9, 0, 1), (0, 9, 1, 2), (1, 9, 2, last)]), now_ms=0)
    assert one.chain_at(2) == other.chain_at(2)
    assert one.chain_at(3) != other.chain_at(3)
    other.truncate_to(2, now_ms=0)
    other.append_as_follower(encode([(1, 9, 2, 3)]), now_ms=0)
    assert one.chain_at(3) == other.chain_at(3)


def test_a_stream_is_in_order_and_ends_with_the_first_loss() -> None:
    world = World(seed=1)
    network = Network(world, Options.draw(random.Random(1)))
    network.is_faulty = False
    channel, arrived = network.channel(1, 2), []
    for number in range(20):
        channel.send(arrived.append, number)
    world.run_until(world.now_us + 1_000 * MS)
    assert arrived == list(range(20))
    network.cut.add((1, 2))
    channel.send(arrived.append, 20)
    network.cut.clear()
    channel.send(arrived.append, 21)
    world.run_until(world.now_us + 1_000 * MS)
    assert arrived == list(range(20))
