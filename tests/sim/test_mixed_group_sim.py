"""The simulated groups that change their protocol (KIP-848): a slice of them, and every planted bug."""

from __future__ import annotations

from tests.sim.groupsim.mixed_model import MIXED_GROUP
from tests.sim.kit.model_tests import ModelTests
from tests.sim.kit.runner import Outcome


class TestMixedGroup(ModelTests):
    model = MIXED_GROUP
    slice_seeds = 16

    def check_outcome(self, outcome: Outcome) -> None:
        assert outcome.event_count > 0  # every run changes the protocol, at the latest when its faults end
