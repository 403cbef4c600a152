"""Tests that the parameters of a docstring become a table of the site."""

from __future__ import annotations

from tools.docs_parameters import with_parameter_tables

DOCSTRING = """Buffers one record.

value, key: bytes, or None. timestamp_ms: milliseconds since the
epoch, a | b. It may be 0. other: is no parameter.

Raises: nothing."""


def test_a_paragraph_that_begins_with_parameters_becomes_a_table() -> None:
    assert with_parameter_tables(DOCSTRING, ["value", "key", "timestamp_ms"]) == (
        "Buffers one record.\n\n"
        "| Parameter | Meaning |\n"
        "| --- | --- |\n"
        "| `value`, `key` | Bytes, or None. |\n"
        "| `timestamp_ms` | Milliseconds since the epoch, a \\| b. It may be 0. other: is no parameter. |\n\n"
        "Raises: nothing."
    )


def test_a_name_in_backticks_is_a_parameter_too() -> None:
    assert "| `leave` | Whether it leaves. |" in with_parameter_tables("`leave`: whether it leaves.", ["leave"])


def test_other_docstrings_stay_as_they_are() -> None:
    assert with_parameter_tables(DOCSTRING, []) == DOCSTRING
    assert with_parameter_tables("Returns the value: it is 1.", ["value"]) == "Returns the value: it is 1."
