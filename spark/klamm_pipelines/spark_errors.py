"""Reduces the error of a Spark query to one line for users, because Spark wraps a Python error in several Java
errors."""

from __future__ import annotations

import re
from typing import Final

_CLASS: Final = r"(?:[A-Za-z_$][\w$]*\.)*[A-Za-z_$][\w$]*(?:Error|Exception)"
_RAISED: Final = re.compile(rf"^(?:Caused by: |: )*{_CLASS}: (?P<text>.+)$")
_CLASS_NAME: Final = re.compile(rf"\b{_CLASS}\b(?:: )?")
_OURS: Final = re.compile(r"^(?:.*: )?klamm\.[\w.]+Error: (?P<text>.+)$")
_CODE: Final = re.compile(r"^\[[A-Z_.]+\] ")


def innermost(text: str) -> str:
    """Returns the line of an error's `text` that says what happened, without names of classes."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for pattern in (_OURS, _RAISED):
        if found := [match["text"] for line in lines if (match := pattern.match(line))]:
            return _plain(found[-1])
    return _plain(lines[0]) if lines else "Spark ended the query without a reason"


def _plain(line: str) -> str:
    plain = _CODE.sub("", _CLASS_NAME.sub("", line)).strip(" :")
    return plain or "Spark ended the query without a reason"
