"""Tests which cells of a table have a colour on a terminal."""

from __future__ import annotations

import re

import pytest

from klamm_cli.console.colors import color_of
from klamm_cli.console.table import table_lines

RED, YELLOW, GREEN, USUAL = "\x1b[31m", "\x1b[33m", "\x1b[32m", ""


@pytest.mark.parametrize(
    ("column", "value", "color"),
    [
        ("state", "fenced", RED),
        ("state", "live", GREEN),
        ("state", "shutting down", YELLOW),
        ("state", "Stable", GREEN),
        ("state", "unheard of", USUAL),
        ("topic", "fenced", USUAL),
        ("lag", 3, YELLOW),
        ("lag", 0, USUAL),
        ("lag", None, USUAL),
        ("lost", 1, RED),
    ],
)
def test_states_and_lags_have_colours(column: str, value: object, color: str) -> None:
    assert color_of(column, value) == color


def test_a_colour_does_not_move_the_columns_and_is_on_each_line_of_a_folded_cell() -> None:
    columns, rows = ("id", "state", "rack"), [(1, "shutting down", "a"), (2, "live", "b")]
    plain = table_lines(columns, rows, width=18)
    with_colors = table_lines(columns, rows, width=18, color_of=color_of)
    uncolored = [re.sub(r"\x1b\[\d+m", "", line).rstrip() for line in with_colors]
    assert uncolored == plain
    assert [line.count(YELLOW) for line in with_colors] == [0, 1, 1, 0]


def test_an_address_is_not_folded() -> None:
    columns = ("id", "address", "text")
    lines = table_lines(columns, [(1, "broker-1.example.com:9094", "a long text of many words")], width=40)
    assert any("broker-1.example.com:9094" in line for line in lines)
    assert max(map(len, lines)) <= 40
