"""Runs seeds of the simulated consumer groups (KIP-848) on every core and reports what was found.

    python tests/sim/group_sim.py --seeds 5000
    python tests/sim/group_sim.py --start 42 --seeds 1 --trace 200       one seed again, and its last 200 lines
    python tests/sim/group_sim.py --mutation early-grant                    how soon a planted bug is found
    python tests/sim/group_sim.py --mutations                            all of them, each by the seed known to find it

Ends with status 1 if any seed violated anything (with --mutation: if none did).
"""

from __future__ import annotations

import random
import sys
from contextlib import AbstractContextManager, nullcontext

from groupsim.mutations import MUTATIONS
from groupsim.options import Options
from groupsim.run import run_seed
from sim_runner import Model, main


def planted(mutation: str | None) -> AbstractContextManager[object]:
    """With that bug in the code, or none."""
    return MUTATIONS[mutation].planted() if mutation else nullcontext()


def describe(seed: int) -> str:
    """The seed's options."""
    return Options.draw(random.Random(seed)).describe()


MODEL = Model(
    script="tests/sim/group_sim.py",
    description=__doc__,
    mutations=dict(MUTATIONS),
    planted=planted,
    run_seed=run_seed,
    describe=describe,
)

if __name__ == "__main__":
    sys.exit(main(MODEL))
