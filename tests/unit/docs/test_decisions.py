"""Tests that every decision has its four sections, names existing files, and is in the index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import markdown

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "docs" / "decisions"
RECORDS = sorted(path.name for path in FOLDER.glob("*.md") if path.name != "index.md")
SECTIONS = ["Context", "Decision", "Cost", "Code and proof"]
TOPS = ("bench", "deploy", "klamm", "klamm_cli", "proto", "services", "spark", "tests", "tools")
_PATH = re.compile(rf"`((?:{'|'.join(TOPS)})/[^`\s]*)`")
_TITLE = re.compile(r"# (\d+)\. (.+)\n")


def sections(text: str) -> dict[str, str]:
    """Returns the text of each section by its heading."""
    _, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    return {heading.strip(): body.strip() for heading, body in (part.split("\n", 1) for part in parts)}


def title(text: str) -> tuple[int, str]:
    """Returns a record's number and title."""
    match = _TITLE.match(text)
    assert match is not None, text[:80]
    return int(match[1]), match[2]


@pytest.mark.parametrize("name", RECORDS)
def test_a_decision_record_has_four_sections_that_are_not_empty(name: str) -> None:
    found = sections((FOLDER / name).read_text())
    assert list(found) == SECTIONS
    assert all(found.values())


@pytest.mark.parametrize("name", RECORDS)
def test_the_files_that_a_record_names_exist(name: str) -> None:
    paths = _PATH.findall((FOLDER / name).read_text())
    assert not [path for path in paths if not (ROOT / path).exists()]


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_names_code_and_proof(name: str) -> None:
    code, proof = sections((FOLDER / name).read_text())["Code and proof"].split("\n- ", 1)
    assert code.startswith("- Code: ")
    assert _PATH.search(code)
    assert proof.startswith("Proof: ")
    assert any(path.startswith(("tests/", "bench/")) for path in _PATH.findall(proof))


def test_a_record_has_its_number_in_its_name_and_no_other_has_it() -> None:
    numbers = [title((FOLDER / name).read_text())[0] for name in RECORDS]
    assert [f"{number:03}" for number in numbers] == [name[:3] for name in RECORDS]
    assert len(set(numbers)) == len(RECORDS)


def test_the_index_lists_every_record_once_by_its_title() -> None:
    index = (FOLDER / "index.md").read_text()
    assert sorted(link.target for link in markdown.links(index)) == RECORDS
    for name in RECORDS:
        number, text = title((FOLDER / name).read_text())
        assert f"| {number} | [{text}]({name}) |" in index
