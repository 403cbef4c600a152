"""The simulated query with an exactly-once sink: a slice of it, and every planted bug."""

from __future__ import annotations

from tests.sim.kit.model_tests import ModelTests
from tests.sim.txnsim.model import BATCH


class TestBatch(ModelTests):
    model = BATCH
    slice_seeds = 16
