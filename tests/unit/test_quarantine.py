"""Tests the quarantine: it has few tests, each with a reason, and none that guards data."""

from __future__ import annotations

import ast
import pathlib
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

from tests.support.second_chance import REAL_TIME

ROOT: Final = pathlib.Path(__file__).resolve().parents[2]
MOST: Final = 5
SINCE: Final = re.compile(r".{20,}, since 20\d\d-\d\d-\d\d$")
"""A reason of some words, and the day on which the test went into quarantine."""


class Quarantined(NamedTuple):
    """A function, class or module with the marker."""

    path: str
    source: str
    arguments: list[object]


def quarantined(path: str, text: str) -> Iterator[Quarantined]:
    """Yields the marked functions, classes and modules in a module's text."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.quarantine":
            marked = [each for each in ast.walk(tree) if node in getattr(each, "decorator_list", ())]
            source = ast.get_source_segment(text, marked[0]) if marked else text
            yield Quarantined(path, source or "", [ast.literal_eval(argument) for argument in node.args])


def faults(all_marked: list[Quarantined]) -> Iterator[str]:
    """Yields the faults of the quarantine."""
    if len(all_marked) > MOST:
        yield f"{len(all_marked)} tests are in quarantine, expected at most {MOST}"
    for one in all_marked:
        if not one.path.startswith(REAL_TIME):
            yield f"{one.path}: only a test of {', '.join(REAL_TIME)} may be in quarantine"
        if len(one.arguments) != 1 or not SINCE.match(str(one.arguments[0])):
            yield f'{one.path}: {one.arguments}, expected ("why, since YYYY-MM-DD")'
        if re.search(r"Violation|\bverdict\(", one.source):
            yield f"{one.path}: a test that guards data must not be in quarantine"


def test_the_quarantine_of_this_repository_has_no_faults() -> None:
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    assert not list(faults([one for path, text in texts.items() for one in quarantined(path, text)]))


REASON = "kcat 1.7 hangs on a busy machine, since 2026-11-24"
MARKED = """
import pytest

@pytest.mark.quarantine({reason!r})
def test_slow():
    {body}
"""


@pytest.mark.parametrize(
    ("path", "reason", "body", "expected"),
    [
        ("tests/integration/test_a.py", REASON, "pass", ""),
        ("tests/unit/test_a.py", REASON, "pass", "only a test of"),
        ("tests/integration/test_a.py", "flaky", "pass", "expected ("),
        (
            "tests/integration/test_a.py",
            REASON,
            "verdict()",
            "guards data",
        ),
    ],
)
def test_each_fault_of_a_quarantine_marker_is_reported(path: str, reason: str, body: str, expected: str) -> None:
    found = list(faults(list(quarantined(path, MARKED.format(reason=reason, body=body)))))
    assert [expected in fault for fault in found] == ([True] if expected else [])


def test_a_sixth_test_in_quarantine_is_refused() -> None:
    marked = list(quarantined("tests/compose/test_a.py", MARKED.format(reason=REASON, body="pass")))
    assert not list(faults(marked * MOST))
    assert list(faults(marked * (MOST + 1))) == ["6 tests are in quarantine, expected at most 5"]
