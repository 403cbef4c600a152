"""Runs seeds of a simulated partition on every core and reports what was found.

    python tests/sim/isr_sim.py --seeds 5000
    python tests/sim/isr_sim.py --start 42 --seeds 1 --trace 200       one seed again, and its last 200 lines
    python tests/sim/isr_sim.py --mutation minimal-isr                 how soon a planted bug is found
    python tests/sim/isr_sim.py --mutations                            each by the seed or the story that finds it

Ends with status 1 if any seed violated anything (with --mutation: if none did).
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

from isrsim.mutations import MUTATIONS
from isrsim.options import Options
from isrsim.run import run_seed
from isrsim.stories import STORIES, planted_in, tell
from sim_runner import Model, main


def planted(mutation: str | None) -> AbstractContextManager[object]:
    """With that bug in the code, or none."""
    return MUTATIONS[mutation].planted() if mutation else nullcontext()


def describe(seed: int) -> str:
    """The seed's options."""
    return Options.draw(random.Random(seed)).describe()


def stories(mutation: str) -> Iterator[tuple[str, str | None]]:
    """The scenarios of tests/scenarios/isr that are about that bug."""
    for path in STORIES:
        if mutation in dict(planted_in(path)):
            with planted(mutation):
                _, violation = tell(path)
            yield path.name, None if violation is None else str(violation)


MODEL = Model(
    script="tests/sim/isr_sim.py",
    description=__doc__,
    mutations=dict(MUTATIONS),
    planted=planted,
    run_seed=run_seed,
    describe=describe,
    stories=stories,
)

if __name__ == "__main__":
    sys.exit(main(MODEL))
