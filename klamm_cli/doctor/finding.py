"""One thing that was looked at."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Level(enum.Enum):
    """What it means for the exit status: only a PROBLEM makes it 1."""

    OK = "ok"
    WARNING = "warning"
    """It works, and may not when something else happens."""
    PROBLEM = "problem"


class Finding(NamedTuple):
    """What was found, and what to do (empty when nothing is)."""

    level: Level
    check: str
    """What was looked at: `python`, `config`, `disk`..."""
    text: str
    advice: str = ""


def ok(check: str, text: str) -> Finding:
    return Finding(Level.OK, check, text)


def warning(check: str, text: str, advice: str) -> Finding:
    return Finding(Level.WARNING, check, text, advice)


def problem(check: str, text: str, advice: str) -> Finding:
    return Finding(Level.PROBLEM, check, text, advice)
