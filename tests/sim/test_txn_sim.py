"""The simulated transaction protocol: a slice of it, and every planted bug."""

from __future__ import annotations

import random

from tests.sim.kit.model_tests import ModelTests
from tests.sim.txnsim.model import TXN
from tests.sim.txnsim.options import Options


class TestTxn(ModelTests):
    model = TXN
    slice_seeds = 10


def test_swarm_options_differ_between_seeds() -> None:
    drawn = [Options.draw(random.Random(seed)) for seed in range(100)]
    assert {options.failover_mean_ms > 0 for options in drawn} == {True, False}
    assert {options.rival_mean_ms > 0 for options in drawn} == {True, False}
    assert {options.partition_count for options in drawn} == {1, 2, 3, 4}
