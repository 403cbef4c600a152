"""Runs stories of a partition that are plain text. Each file contains its expected trace.

The stories are known counter-examples, of designs of Kafka or its models, and of unwritten rules. A line that begins
with `>` is a command (tests/sim/isrsim/script.py lists them). The lines after it are its effects, and `#` begins a
remark. A line `! bug: rule` says that the story breaks that rule if this bug of tests/sim/isrsim/mutations.py is
planted. To change a story, write the commands and run `pytest tests/scenarios --rewrite`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.isrsim.mutations import MUTATIONS
from tests.sim.isrsim.stories import STORIES, planted_in, tell

FOUND = [(path, bug, rule) for path in STORIES for bug, rule in planted_in(path)]


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_scenario_replays_as_written_and_violates_no_rule(path: Path, request: pytest.FixtureRequest) -> None:
    told, violation = tell(path)
    if request.config.getoption("--rewrite", default=False):
        path.write_text(told)
    assert told.splitlines() == path.read_text().splitlines()
    assert violation is None


@pytest.mark.parametrize(("path", "bug", "rule"), FOUND, ids=lambda value: getattr(value, "stem", value))
def test_a_scenario_breaks_its_rule_when_its_bug_is_planted(path: Path, bug: str, rule: str) -> None:
    with MUTATIONS[bug].planted():
        _, violation = tell(path)
    assert violation is not None
    assert str(violation).startswith(f"{rule}: ")


def test_every_isr_scenario_belongs_to_a_bug() -> None:
    assert {path for path, _, _ in FOUND} == set(STORIES)
    assert len(STORIES) >= 10
