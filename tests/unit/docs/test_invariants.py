"""Tests that the page of invariants names asserts and tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "explanation" / "invariants.md"
ROWS = re.findall(r"^\| ([^|]+) \| [^|]+ \| `([^`|]+)` in `([^`|]+)` \| `([^`|]+)` \|$", PAGE.read_text(), re.MULTILINE)
"""The rule, the condition, the file with the assert, and the file with the tests."""


def test_the_page_has_twenty_invariants() -> None:
    assert len(ROWS) == 20


@pytest.mark.parametrize(("condition", "file", "tests"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_the_code_asserts_the_condition(condition: str, file: str, tests: str) -> None:
    tree = ast.parse((ROOT / file).read_text())
    asserted = [ast.unparse(node.test) for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    assert any(condition in text for text in asserted), asserted
    assert (ROOT / tests).is_file()
