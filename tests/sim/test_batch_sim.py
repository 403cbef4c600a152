"""A slice of the simulated query with an exactly-once sink, and every planted bug."""

from __future__ import annotations

import pytest
import seeds
from batch_sim import MODEL
from sim_runner import run_slice
from txnsim.batch_mutations import MUTATIONS
from txnsim.batch_run import run_seed

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
    assert run_seed(seed).committed_count > 0
