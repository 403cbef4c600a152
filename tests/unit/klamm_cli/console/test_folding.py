"""Tests where a sentence is folded for a terminal."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_cli.console.folding import fold, folded


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("short", ["short"]),
        ("no server answers at 127.0.0.1:9094 now", ["no server answers at", "127.0.0.1:9094 now"]),
        ("at 127.0.0.1:9094,127.0.0.1:9095: none", ["at 127.0.0.1:9094,", "127.0.0.1:9095: none"]),
        ("ok      files: a process may", ["ok      files: a", "process may"]),
        ("    servers that do not answer", ["    servers that do", "    not answer"]),
        ("start one with `klamm up --port 0`, or", ["start one with", "`klamm up --port 0`,", "or"]),
        ("at /a/very/long/path/of/a/file it is", ["at", "/a/very/long/path/of/a/file", "it is"]),
    ],
)
def test_a_sentence_is_folded_between_words_and_addresses(line, parts):
    assert fold(line, 21).split("\n") == parts


def test_a_sentence_for_a_file_is_not_folded():
    line = "word " * 100
    assert folded(line, io.StringIO()) == line


@given(line=st.text("ab,:` ", max_size=120).map(str.rstrip), width=st.integers(10, 60))
def test_folding_drops_only_spaces_where_it_breaks_the_line(line, width):
    parts = fold(line, width).split("\n")
    assert "".join(parts).replace(" ", "") == line.replace(" ", "")
    assert len(line) > width or parts == [line]
