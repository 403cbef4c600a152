"""Runs seeds of a simulated query with an exactly-once sink, as `txn_sim.py` does of producers.

python tests/sim/batch_sim.py --seeds 5000
python tests/sim/batch_sim.py --mutations
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext

from sim_runner import Model, main
from txnsim.batch_mutations import MUTATIONS
from txnsim.batch_run import draw, run_seed


def planted(mutation: str | None) -> AbstractContextManager[object]:
    """With that bug in the code, or none."""
    return MUTATIONS[mutation].planted() if mutation else nullcontext()


def describe(seed: int) -> str:
    """The seed's options."""
    return draw(seed).describe()


MODEL = Model(
    script="tests/sim/batch_sim.py",
    description=__doc__,
    mutations=dict(MUTATIONS),
    planted=planted,
    run_seed=run_seed,
    describe=describe,
)

if __name__ == "__main__":
    sys.exit(main(MODEL))
