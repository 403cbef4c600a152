"""The simulated consumer groups (KIP-848): a slice of them, and every planted bug."""

from __future__ import annotations

import random

from tests.sim.groupsim.model import GROUP
from tests.sim.groupsim.options import Options
from tests.sim.kit.model_tests import ModelTests
from tests.sim.kit.runner import Outcome


class TestGroup(ModelTests):
    model = GROUP
    slice_seeds = 16

    def check_outcome(self, outcome: Outcome) -> None:
        assert outcome.event_count > 0  # in a short run perhaps nobody commits an offset


def test_swarm_options_differ_between_seeds() -> None:
    drawn = [Options.draw(random.Random(seed)) for seed in range(100)]
    assert {options.failover > 0 for options in drawn} == {True, False}
    assert {options.duplicate_join > 0 for options in drawn} == {True, False}
    assert {options.client_count for options in drawn} == {2, 3, 4, 5, 6}
