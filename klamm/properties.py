"""Reads properties files of servers and clients, in the format of Kafka's tools."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from klamm.errors import ConfigError


def read_properties(path: Path) -> dict[str, str]:
    """Returns the names and values of a properties file: `name=value` lines, with `#` or `!` comments.

    Raises ConfigError if the file cannot be read, has another kind of line, or sets a name twice."""
    return parse_properties(read_lines(path), str(path))


def read_lines(path: Path) -> list[str]:
    """Returns the lines of a properties file. Raises ConfigError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration {path}: {error}") from error


def parse_properties(lines: Iterable[str], origin: str) -> dict[str, str]:
    """Parses lines in the format of `read_properties`. `origin` names them in errors ("broker.properties", "--set")."""
    properties, problems = split_lines(lines, origin)
    if problems:
        raise ConfigError("; ".join(problems))
    return properties


def split_lines(lines: Iterable[str], origin: str) -> tuple[dict[str, str], list[str]]:
    """Returns the values by name, and a text for each line that is wrong."""
    properties: dict[str, str] = {}
    problems: list[str] = []
    for number, line in enumerate(lines, start=1):
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        name, separator, value = line.partition("=")
        name = name.strip()
        if not separator or not name:
            # Do not show the line, because it may contain a secret.
            problems.append(f"{origin}, line {number} is not of the form name=value")
        elif name in properties:
            problems.append(f"{origin}, line {number}: {name} is set twice")
        else:
            properties[name] = value.strip()
    return properties, problems
