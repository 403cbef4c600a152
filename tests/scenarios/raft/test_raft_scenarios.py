"""Runs stories of a quorum that are plain text. Each file contains its expected trace.

A line that begins with `>` is a command (support/raft_script.py lists them). The lines after it are its effects, and
`#` begins a remark. To change a story, write the commands and run `pytest tests/scenarios/raft --rewrite`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.raftsim.mutations import MUTATIONS
from tests.support.raft_script import Script

SCENARIOS = sorted(Path(__file__).parent.glob("*.txt"))


def replay(story: str) -> str:
    """Returns the story with the traces that its commands have now."""
    script = Script()
    lines: list[str] = []
    for line in story.splitlines():
        if line.startswith(">"):
            lines += [line, *(f"  {happened}" for happened in script.run(line[1:].strip()))]
        elif line.startswith("#") or not line:
            lines.append(line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_replays_as_written(path: Path, request: pytest.FixtureRequest) -> None:
    story = path.read_text()
    happened = replay(story)
    if request.config.getoption("--rewrite", default=False):
        path.write_text(happened)
    assert happened.splitlines() == path.read_text().splitlines()


def test_the_figure_8_scenario_changes_if_old_terms_are_committed_by_counting() -> None:
    story = (Path(__file__).parent / "figure_8.txt").read_text()
    with MUTATIONS["commit-old-term-by-count"].planted():
        assert replay(story) != story


def test_at_least_ten_raft_scenarios_exist() -> None:
    assert len(SCENARIOS) >= 10
