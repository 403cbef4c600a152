"""Tests tables as text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm_cli.console.table import table_lines

COLUMNS = ("name", "size_bytes", "note")


def test_columns_are_as_wide_as_they_need_and_numbers_are_on_the_right():
    rows = [("orders", 7, None), ("x", 1_000, ("a", "b"))]
    assert table_lines(COLUMNS, rows) == [
        "NAME    SIZE BYTES  NOTE",
        "orders           7  -",
        "x             1000  a,b",
    ]


def test_a_table_without_rows_is_its_header():
    assert table_lines(COLUMNS, [], json_only={"size_bytes"}) == ["NAME  NOTE"]


def test_a_narrow_terminal_folds_the_widest_columns_between_words():
    rows = [("orders", 7, "what happens to old segments")]
    assert table_lines(COLUMNS, rows, width=36) == [
        "NAME    SIZE BYTES  NOTE",
        "orders           7  what happens to",
        "                    old segments",
    ]


def test_a_name_stays_in_one_piece_while_it_leaves_half_of_the_width():
    lines = table_lines(COLUMNS, [("a" * 15, "b" * 40, "c")], width=40)
    assert lines[1].startswith("a" * 15 + "  b")
    assert max(map(len, lines)) <= 40


def test_a_narrow_terminal_folds_paths_between_names_and_no_numbers():
    rows = [("orders", 20469012, "/data/broker-1/orders-0")]
    assert table_lines(COLUMNS, rows, width=30) == [
        "NAME    SIZE BYTES  NOTE",
        "orders    20469012  /data/",
        "                    broker-1/",
        "                    orders-0",
    ]
    assert table_lines(COLUMNS, rows, width=20)[2:4] == ["orde  20469012  /dat", "rs              a/"]
    assert table_lines(COLUMNS, rows, width=18)[2:4] == ["orde 20469012 /dat", "rs            a/"]


def test_characters_of_two_columns_and_of_none_are_counted():
    lines = table_lines(("name", "note"), [("日本", "x"), ("e\u0301", "x"), ("ab", "x")])
    assert lines == ["NAME  NOTE", "日本  x", "e\u0301     x", "ab    x"]


def test_control_characters_in_a_name_are_escaped():
    assert table_lines(("name",), [("a\x1b[2J\nb",)]) == ["NAME", "a\\x1b[2J\\nb"]


@given(
    rows=st.lists(
        st.tuples(st.text(max_size=30), st.integers(-99_999, 999_999) | st.none(), st.text(max_size=60)), max_size=5
    ),
    width=st.integers(24, 100),
)
def test_folded_tables_keep_all_text_and_fit_the_width(rows, width):
    """Folding may drop only the spaces where it breaks lines."""
    flat = table_lines(COLUMNS, rows)
    folded = table_lines(COLUMNS, rows, width=width)
    assert sorted("".join(folded).replace(" ", "")) == sorted("".join(flat).replace(" ", ""))
    assert all(len(line) <= width for line in folded if line.isascii())
