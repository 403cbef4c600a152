"""Tests the parts of generated pages."""

from __future__ import annotations

import pytest

from tools.reference.markdown import prose, table


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("waits up to max_wait_ms", "waits up to `max_wait_ms`"),
        ("`a_b` and A_B_C, ssl.*", r"`a_b` and `A_B_C`, ssl.\*"),
        ("<name>.log of __consumer_offsets", "&lt;name>.log of `__consumer_offsets`"),
        ("tests/unit/test_x.py", "tests/unit/test_x.py"),
    ],
)
def test_only_names_become_code_in_generated_prose(said: str, written: str) -> None:
    assert prose(said) == written


def test_a_table_cell_is_one_line_with_escaped_bars() -> None:
    assert list(table(("A", "B"), [("x\ny", "1 | 2")])) == ["| A | B |", "| --- | --- |", r"| x y | 1 \| 2 |", ""]


def test_a_table_without_rows_is_left_out() -> None:
    assert list(table(("A",), [])) == []
