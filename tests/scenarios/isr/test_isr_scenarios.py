"""Stories of a partition in plain text, with everything that happens: the trace in the file is the expected one.

They are the counter-examples that are known: of designs that Kafka or a model of it once had, and of rules that nobody
wrote down. A line that begins with `>` is a command (tests/sim/isrsim/script.py lists them), the lines that follow are
what came of it, `#` begins a remark. A line `! bug: rule` says that with this bug of tests/sim/isrsim/mutations.py
planted the story breaks that rule. To change a story, write the commands and run `pytest tests/scenarios --rewrite`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.isrsim.mutations import MUTATIONS
from tests.sim.isrsim.stories import STORIES, planted_in, tell

FOUND = [(path, bug, rule) for path in STORIES for bug, rule in planted_in(path)]


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    told, violation = tell(path)
    if request.config.getoption("--rewrite", default=False):
        path.write_text(told)
    assert told.splitlines() == path.read_text().splitlines()
    assert violation is None


@pytest.mark.parametrize(("path", "bug", "rule"), FOUND, ids=lambda value: getattr(value, "stem", value))
def test_with_the_bug_the_scenario_breaks_the_rule(path: Path, bug: str, rule: str) -> None:
    with MUTATIONS[bug].planted():
        _, violation = tell(path)
    assert violation is not None
    assert str(violation).startswith(f"{rule}: ")


def test_every_story_is_about_a_bug() -> None:
    assert {path for path, _, _ in FOUND} == set(STORIES)
    assert len(STORIES) >= 10
