"""The simulation of retention that waits for groups."""

from __future__ import annotations

import random
from typing import Final

from tests.sim.holdsim.mutations import MUTATIONS
from tests.sim.holdsim.options import Options
from tests.sim.holdsim.run import run_seed
from tests.sim.kit.runner import Model

HOLD: Final = Model(
    name="hold",
    mutations=MUTATIONS,
    run_seed=run_seed,
    describe=lambda seed: Options.draw(random.Random(seed)).describe(),
)
