"""The simulation of a partition, and the scripted scenarios that find what its seeds hardly ever do."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from tests.sim.isrsim.mutations import MUTATIONS
from tests.sim.isrsim.options import Options
from tests.sim.isrsim.run import run_seed
from tests.sim.isrsim.stories import STORIES, planted_in, tell
from tests.sim.kit.runner import Model


def stories(mutation: str) -> Iterator[tuple[str, str | None]]:
    """The scenarios of tests/scenarios/isr that are about that bug."""
    for path in STORIES:
        if mutation in dict(planted_in(path)):
            with ISR.planted(mutation):
                _, violation = tell(path)
            yield path.name, None if violation is None else str(violation)


ISR: Final = Model(
    name="isr",
    mutations=MUTATIONS,
    run_seed=run_seed,
    describe=lambda seed: Options.draw(random.Random(seed)).describe(),
    stories=stories,
)
