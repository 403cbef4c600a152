"""A slice of the simulated partition with synced records, and its planted bugs."""

from __future__ import annotations

from tests.sim.isrsim.sync_model import SYNC
from tests.sim.kit.model_tests import ModelTests


class TestSync(ModelTests):
    model = SYNC
    slice_seeds = 8
