"""A slice of the simulated consumer groups (KIP-848) and every planted bug."""

from __future__ import annotations

import random

import pytest
import seeds
from group_sim import MODEL
from groupsim.mutations import MUTATIONS
from groupsim.options import Options
from groupsim.run import run_seed
from sim_runner import run_slice

SLICE_SEEDS = 25


def test_a_slice_of_seeds_violates_nothing() -> None:
    run_slice(MODEL, seeds.run_seed(), SLICE_SEEDS)


@pytest.mark.parametrize("name", MUTATIONS)
def test_planted_bugs_are_found(name: str) -> None:
    mutation = MUTATIONS[name]
    with mutation.planted(), pytest.raises(AssertionError):
        run_seed(mutation.known_seed)


@pytest.mark.parametrize("seed", sorted({mutation.known_seed for mutation in MUTATIONS.values()}))
def test_without_the_bugs_the_same_seeds_violate_nothing(seed: int) -> None:
    assert run_seed(seed).event_count > 0


def test_a_seed_decides_everything() -> None:
    assert run_seed(3) == run_seed(3)
    assert run_seed(3) != run_seed(4)


def test_swarm_options_differ_between_seeds() -> None:
    drawn = [Options.draw(random.Random(seed)) for seed in range(100)]
    assert {options.failover > 0 for options in drawn} == {True, False}
    assert {options.duplicate_join > 0 for options in drawn} == {True, False}
    assert {options.client_count for options in drawn} == {2, 3, 4, 5, 6}
