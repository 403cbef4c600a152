"""The simulation of a quorum of controllers, and the search for the shortest story of a violation."""

from __future__ import annotations

import random
from collections import deque
from typing import Final

from tests.sim.kit.runner import Model
from tests.sim.raftsim.decisions import Decision
from tests.sim.raftsim.mutations import MUTATIONS
from tests.sim.raftsim.options import Options
from tests.sim.raftsim.run import run_seed
from tests.sim.raftsim.shrink import kind_of, replay, shrink

MINIMISE_S = 30


def minimise(seed: int, mutation: str | None) -> None:
    """Prints the shortest story found that breaks the same rule."""
    decisions: list[Decision] = []
    with RAFT.planted(mutation):
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


RAFT: Final = Model(
    name="raft",
    mutations=MUTATIONS,
    run_seed=run_seed,
    describe=lambda seed: Options.draw(random.Random(seed)).describe(),
    minimise=minimise,
)
