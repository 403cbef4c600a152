"""The simulations of transactions, and of queries with an exactly-once sink."""

from __future__ import annotations

import random
from typing import Final

from tests.sim.kit.runner import Model
from tests.sim.txnsim import batch_mutations, batch_run, mutations, run
from tests.sim.txnsim.options import Options

TXN: Final = Model(
    name="txn",
    mutations=mutations.MUTATIONS,
    run_seed=run.run_seed,
    describe=lambda seed: Options.draw(random.Random(seed)).describe(),
)
BATCH: Final = Model(
    name="batch",
    mutations=batch_mutations.MUTATIONS,
    run_seed=batch_run.run_seed,
    describe=lambda seed: batch_run.draw(seed).describe(),
)
