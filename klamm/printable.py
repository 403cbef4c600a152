"""Escapes control characters in text that people read.

Clients choose the names of groups, members and transactions. A line feed in such a name could fake a line of a log, and
an escape sequence could change a terminal. The characters are those that Unicode does not count as printable: controls
(C0, DEL, C1), line and paragraph separators, and formats such as the marks that turn the direction of text.
"""

from __future__ import annotations

import json
import re
from typing import Final

_NOT_ASCII: Final = re.compile(r"[^\n -~]+")
"""Characters that may have to be escaped in JSON text."""


def printable(text: str, keep: str = "") -> str:
    """Returns the text on one line, with an escape for each character that is not printable. Characters of `keep` stay
    as they are."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in keep else character.encode("unicode_escape").decode()
        for character in text
    )


def printable_json(text: str) -> str:
    """Returns JSON text of the same value, with an escape for each character that is not printable. Line feeds stay,
    because JSON has them only between its parts."""
    return _NOT_ASCII.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in match[0])
