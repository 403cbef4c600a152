"""Tests the parser of properties files, and errors that do not show possible secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.errors import ConfigError
from klamm.properties import parse_properties, read_properties


def test_a_properties_file_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "broker.properties"
    path.write_text("# a comment\n! another\n\n node.id = 3 \nlog.dirs=/a,/b\nbroker.rack=\nx=a=b\n")
    assert read_properties(path) == {"node.id": "3", "log.dirs": "/a,/b", "broker.rack": "", "x": "a=b"}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["node.id=1", "node.id=2"], "f, line 2: node.id is set twice"),
        (["", "verbose"], "f, line 2 is not of the form name=value"),
        (["=5"], "f, line 1 is not of the form name=value"),
    ],
)
def test_bad_properties_are_named_by_line(lines: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_properties(lines, "f")
    assert str(caught.value) == message


def test_every_bad_line_of_a_file_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_properties(["a=1", "b", "a=2"], "f")
    assert str(caught.value) == "f, line 2 is not of the form name=value; f, line 3: a is set twice"


def test_an_unreadable_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the configuration"):
        read_properties(tmp_path / "missing.properties")
    binary = tmp_path / "binary.properties"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot read the configuration"):
        read_properties(binary)
