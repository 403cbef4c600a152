from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from klamm.errors import ConfigError
from klamm.idempotence.statement import Statement, paramstyle_of

VALUES = {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("paramstyle", "text", "arguments"),
    [
        ("qmark", "SELECT ?, ?, ?", (2, 1, 2)),
        ("numeric", "SELECT :1, :2, :3", (2, 1, 2)),
        ("named", "SELECT :b, :a, :b", VALUES),
        ("format", "SELECT %s, %s, %s", (2, 1, 2)),
        ("pyformat", "SELECT %(b)s, %(a)s, %(b)s", VALUES),
    ],
)
def test_a_statement_has_the_parameters_of_each_style(paramstyle: str, text: str, arguments: Any) -> None:
    statement = Statement("SELECT :b, :a, :b", paramstyle)

    assert (statement.text, statement.arguments(VALUES)) == (text, arguments)


def test_the_paramstyle_is_that_of_the_driver_also_for_a_subclass() -> None:
    class Traced(sqlite3.Connection):
        pass

    assert paramstyle_of(sqlite3.connect(":memory:", factory=Traced)) == "qmark"


def test_a_connection_of_an_unknown_module_needs_a_paramstyle() -> None:
    with pytest.raises(ConfigError, match="pass paramstyle, one of qmark, numeric"):
        paramstyle_of(object())
