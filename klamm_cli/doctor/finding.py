"""One thing that was looked at."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Level(enum.Enum):
    """What it means for the exit status: only a PROBLEM makes it 1."""

    OK = "ok"
    WARNING = "warning"
    """It works now, but may fail later."""
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
