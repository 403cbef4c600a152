"""Tests that text for people has no control characters."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.printable import printable, printable_json

CONTROLS = "\0\a\t\n\r\x1b\x7f\x80\x85\x9b\u2028\u2029\u202e\u2066\ufeff\U000e0001\ud800"
"""C0, DEL, C1, separators of lines and paragraphs, direction marks, invisible characters, and half a surrogate pair."""


@pytest.mark.parametrize("control", CONTROLS)
def test_a_control_character_is_escaped_in_text_and_in_json(control: str) -> None:
    assert printable(f"a{control}b").isprintable()
    assert printable(f"a{control}b").startswith("a\\")
    document = json.dumps({"name": f"a{control}b"}, ensure_ascii=False)
    assert printable_json(document).isprintable()
    assert json.loads(printable_json(document)) == {"name": f"a{control}b"}


def test_other_characters_stay_as_they_are() -> None:
    assert printable("grün 日本 \\n") == printable_json("grün 日本 \\n") == "grün 日本 \\n"
    assert printable("a\tb\nc\rd", keep="\n\t") == "a\tb\nc\\rd"


@given(st.dictionaries(st.text(), st.lists(st.text() | st.integers() | st.none())), st.sampled_from([None, 2]))
def test_escaped_json_has_the_same_value(document: object, indent: int | None) -> None:
    text = printable_json(json.dumps(document, ensure_ascii=False, indent=indent))
    assert json.loads(text) == document
    assert text.replace("\n", "").isprintable()
