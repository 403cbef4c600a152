"""Runs seeds of the simulated quorum on every core and reports what was found.

    python tests/sim/raft_sim.py --seeds 5000
    python tests/sim/raft_sim.py --minutes 30 --start 100000
    python tests/sim/raft_sim.py --start 42 --seeds 1 --trace 200      one seed again, and its last 200 lines
    python tests/sim/raft_sim.py --mutation vote-not-persisted         how soon a planted bug is found
    python tests/sim/raft_sim.py --mutations                           all of them, each by the seed known to find it

Ends with status 1 if any seed violated anything (with --mutation: if none did).
"""

from __future__ import annotations

import random
import sys
from collections import deque
from contextlib import AbstractContextManager, nullcontext

from raftsim.decisions import Decision
from raftsim.mutations import MUTATIONS
from raftsim.options import Options
from raftsim.run import run_seed
from raftsim.shrink import kind_of, replay, shrink
from sim_runner import Model, main

MINIMISE_S = 30


def planted(mutation: str | None) -> AbstractContextManager[object]:
    """With that bug in the core, or none."""
    return MUTATIONS[mutation].planted() if mutation else nullcontext()


def describe(seed: int) -> str:
    """The seed's options."""
    return Options.draw(random.Random(seed)).describe()


def minimise(seed: int, mutation: str | None) -> None:
    """Prints the shortest story found that breaks the same rule."""
    decisions: list[Decision] = []
    with planted(mutation):
        try:
            run_seed(seed, decisions=decisions)
        except Exception as error:  # noqa: BLE001 - a mutated core may break anywhere; all of it counts as found
            kind = kind_of(error)
        else:
            return
        kept = shrink(seed, decisions, kind, MINIMISE_S)
        trace: deque[str] = deque()
        if replay(seed, kept, trace) != kind:
            print(f"seed {seed}: {kind}: has no form without a clock, see --trace")
            return
    print(f"seed {seed}: {kind}: {len(decisions)} decisions, {len(kept)} of them break it as well:")
    print("\n".join(f"    {line}" for line in trace))


MODEL = Model(
    script="tests/sim/raft_sim.py",
    description=__doc__,
    mutations=dict(MUTATIONS),
    planted=planted,
    run_seed=run_seed,
    describe=describe,
    minimise=minimise,
)

if __name__ == "__main__":
    sys.exit(main(MODEL))
