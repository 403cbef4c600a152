"""A slice of the simulated partition with new seeds each time, and every planted bug."""

from __future__ import annotations

import random

import pytest
from isr_sim import MODEL
from isrsim.mutations import MUTATIONS
from isrsim.options import Options
from isrsim.run import run_seed
from isrsim.sim_log import SimLog, SimLogConfig, encode
from sim_runner import run_slice

SLICE_S = 20


def test_fresh_seeds_violate_nothing() -> None:
    run_slice(MODEL, SLICE_S)


@pytest.mark.parametrize("name", MUTATIONS)
def test_planted_bugs_are_found(name: str) -> None:
    mutation = MUTATIONS[name]
    with mutation.planted(), pytest.raises(AssertionError):
        run_seed(mutation.known_seed)


@pytest.mark.parametrize("seed", sorted({mutation.known_seed for mutation in MUTATIONS.values()}))
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
    assert {options.replica_count for options in drawn} == {2, 3, 4, 5}


def test_chains_tell_logs_apart() -> None:
    one, other = SimLog(SimLogConfig(1)), SimLog(SimLogConfig(1))
    for log, last in ((one, 3), (other, 4)):
        log.append_as_follower(encode([(0, 1), (0, 2), (1, last)]), now_ms=0)
    assert one.chain_at(2) == other.chain_at(2)
    assert one.chain_at(3) != other.chain_at(3)
    other.truncate_to(2, now_ms=0)
    other.append_as_follower(encode([(1, 3)]), now_ms=0)
    assert one.chain_at(3) == other.chain_at(3)
