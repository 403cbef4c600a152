"""The simulation of consumer groups (KIP-848)."""

from __future__ import annotations

import random
from typing import Final

from tests.sim.groupsim.mutations import MUTATIONS
from tests.sim.groupsim.options import Options
from tests.sim.groupsim.run import run_seed
from tests.sim.kit.runner import Model

GROUP: Final = Model(
    name="group",
    mutations=MUTATIONS,
    run_seed=run_seed,
    describe=lambda seed: Options.draw(random.Random(seed)).describe(),
)
