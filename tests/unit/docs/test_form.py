"""Tests that the pages of the site have a form that a forge and MkDocs show in the same way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import markdown

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md"))
_ITEM = re.compile(r"(?P<indent> *)(?:[-*+]|\d+[.)]) +\S")


def faults(text: str) -> Iterator[str]:
    """Yields text that MkDocs and a forge would show differently, and headings that the menu cannot use."""
    lines = markdown.without_code(text).split("\n")
    if not lines[0].startswith("# ") or sum(line.startswith("# ") for line in lines) != 1:
        yield "a page begins with its one heading of the first level"
    for number, (before, line) in enumerate(zip(["", *lines], lines, strict=False), start=1):
        item = _ITEM.match(line)
        if item is None:
            continue
        if len(item["indent"]) % 4:
            yield f"line {number}: a list inside a list is indented by four spaces"
        if before.strip() and not _ITEM.match(before) and not before.startswith("  "):
            yield f"line {number}: an empty line stands before a list"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_form_of_the_site(page: str) -> None:
    assert not list(faults((ROOT / page).read_text()))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("# A\n\nText:\n\n- one\n  goes on\n- two\n\n    - three\n", 0),
        ("# A\n\nText:\n- one\n", 1),
        ("# A\n\n- one\n  - two\n", 1),
        ("## A\n", 1),
        ("# A\n\n# B\n", 1),
        ("# A\n\n```\n# no heading\nText:\n- no list\n```\n", 0),
    ],
)
def test_faults_in_the_form_of_a_page_are_found(text: str, count: int) -> None:
    assert len(list(faults(text))) == count
