"""Colours the words on a terminal that say how a server, a partition or a group is.

NO_COLOR turns the colours off (no-color.org)."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

BOLD: Final = "\x1b[1m"
PLAIN: Final = "\x1b[0m"
_GREEN: Final = "\x1b[32m"
_YELLOW: Final = "\x1b[33m"
_RED: Final = "\x1b[31m"

_STATES: Final = {
    **dict.fromkeys(("healthy", "live", "online", "leader", "stable", "ok", "done", "allowed"), _GREEN),
    **dict.fromkeys(("shutting down", "moving", "empty", "preparingrebalance", "completingrebalance"), _YELLOW),
    **dict.fromkeys(("reconciling", "assigning", "observer"), _YELLOW),
    **dict.fromkeys(("degraded", "fenced", "offline", "dead", "damaged", "denied", "failed", "hanging"), _RED),
}
_STATE_COLUMNS: Final = frozenset({"state", "role", "result"})
_WORRYING: Final = frozenset({"lag", "out_of_sync"})
"""The columns in which each number above 0 is yellow."""
_LOSING: Final = frozenset({"lost", "damaged"})
"""The columns in which each number above 0 is red."""


def is_colored() -> bool:
    """Returns whether stdout is a terminal whose user wants colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def color_of(column: str, value: Any) -> str:
    """Returns the colour of a table's cell as an escape sequence, or "" for the usual one."""
    if column in _STATE_COLUMNS and isinstance(value, str):
        return _STATES.get(value.lower(), "")
    is_positive = isinstance(value, int | float) and value > 0
    if column in _WORRYING and is_positive:
        return _YELLOW
    return _RED if column in _LOSING and is_positive else ""


def colored(text: str, word: str) -> str:
    """Returns the text in the colour of a state's word, if stdout is a terminal."""
    color = _STATES.get(word.lower(), "")
    return f"{color}{text}{PLAIN}" if color and is_colored() else text
