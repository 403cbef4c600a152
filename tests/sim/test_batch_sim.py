"""A slice of the simulated query with an exactly-once sink with new seeds each time, and every planted bug."""

from __future__ import annotations

import random
import time

import pytest
from sim_runner import rerun_command
from txnsim.batch_mutations import MUTATIONS
from txnsim.batch_run import run_seed

SLICE_S = 4
SCRIPT = "tests/sim/batch_sim.py"


def test_fresh_seeds_violate_nothing() -> None:
    start = random.SystemRandom().randrange(1_000_000_000)
    print(f"seeds from {start}")
    end_s = time.monotonic() + SLICE_S
    seed, committed_count = start, 0
    while time.monotonic() < end_s:
        try:
            committed_count += run_seed(seed).committed_count
        except BaseException:
            print(f"again: {rerun_command(SCRIPT, seed)}")
            raise
        seed += 1
    print(f"{seed - start} seeds, {committed_count} batches; again: python {SCRIPT} --start {start}")
    assert committed_count > 0


@pytest.mark.parametrize("name", MUTATIONS)
def test_planted_bugs_are_found(name: str) -> None:
    mutation = MUTATIONS[name]
    with mutation.planted(), pytest.raises(AssertionError):
        run_seed(mutation.known_seed)


@pytest.mark.parametrize("seed", sorted({mutation.known_seed for mutation in MUTATIONS.values()}))
def test_without_the_bugs_the_same_seeds_violate_nothing(seed: int) -> None:
    assert run_seed(seed).committed_count > 0
