"""The simulated retention that waits for groups: a slice of it, and every planted bug."""

from __future__ import annotations

import random

from tests.sim.holdsim.model import HOLD
from tests.sim.holdsim.options import Options
from tests.sim.holdsim.run import Outcome, run_seed
from tests.sim.kit import runner
from tests.sim.kit.model_tests import ModelTests


class TestHold(ModelTests):
    model = HOLD
    slice_seeds = 100

    def check_outcome(self, outcome: runner.Outcome) -> None:
        assert isinstance(outcome, Outcome)
        assert outcome.committed_count > 0
        assert outcome.deleted_count > 0


def test_most_seeds_delete_by_reading_and_by_bounds() -> None:
    outcomes = [run_seed(seed) for seed in range(30)]
    assert sum(outcome.deleted_count > 50 for outcome in outcomes) > 20


def test_swarm_options_differ_between_seeds() -> None:
    drawn = [Options.draw(random.Random(seed)) for seed in range(100)]
    assert {options.shard_move_ms > 0 for options in drawn} == {True, False}
    assert {options.hold_max_ms for options in drawn} == {-1, 12_000, 30_000}
    assert {options.group_count for options in drawn} == {1, 2, 3, 4}
