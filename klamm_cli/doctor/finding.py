"""The result of one check of `klamm doctor`."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Level(enum.Enum):
    """The severity of a finding. Only a PROBLEM makes the exit status 1."""

    OK = "ok"
    WARNING = "warning"
    """The subject works now, but may fail later."""
    PROBLEM = "problem"


class Finding(NamedTuple):
    """The result of a check, and advice (empty if there is nothing to do)."""

    level: Level
    check: str
    """The subject of the check: `python`, `config`, `disk`..."""
    text: str
    advice: str = ""


def ok(check: str, text: str) -> Finding:
    return Finding(Level.OK, check, text)


def warning(check: str, text: str, advice: str) -> Finding:
    return Finding(Level.WARNING, check, text, advice)


def problem(check: str, text: str, advice: str) -> Finding:
    return Finding(Level.PROBLEM, check, text, advice)
