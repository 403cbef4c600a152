"""Parses `name=value` arguments of the command line."""

from __future__ import annotations

from collections.abc import Iterable

from klamm.errors import ConfigError


def parse_assignments(pairs: Iterable[str], option: str) -> dict[str, str]:
    """Returns pairs such as `retention.ms=1000` as a mapping of names to values. Raises ConfigError if a pair is
    malformed."""
    parsed = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{option} {pair!r}: expected name=value")
        parsed[name.strip()] = value.strip()
    return parsed
