"""The scripted scenarios of tests/scenarios/isr, and which planted bugs each of them finds."""

from __future__ import annotations

from pathlib import Path

from tests.sim.isrsim.script import Script
from tests.support.violation import Violation

STORIES = sorted((Path(__file__).parents[2] / "scenarios" / "isr").glob("*.txt"))


def tell(path: Path) -> tuple[str, Violation | None]:
    """Returns the story with the present traces of its commands, and the violation that it found."""
    script = Script()
    lines: list[str] = []
    for line in path.read_text().splitlines():
        if line.startswith(">"):
            lines += [line, *(f"  {happened}" for happened in script.run(line[1:].strip()))]
        elif line.startswith(("#", "!")) or not line:
            lines.append(line)
    return "\n".join(lines) + "\n", script.violation


def planted_in(path: Path) -> list[tuple[str, str]]:
    """(bug, rule that it breaks) of a story."""
    return [
        (bug, rule)
        for line in path.read_text().splitlines()
        if line.startswith("!")
        for bug, rule in [line[1:].strip().split(": ")]
    ]
