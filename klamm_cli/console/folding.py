"""Folds sentences for a terminal. Otherwise, the terminal breaks lines in the middle of words and addresses."""

from __future__ import annotations

import re
import shutil
from typing import Final, TextIO

_WORD: Final = re.compile(r"( *)(`[^`]*`\S*|\S+)")
"""A word that stays in one piece, after the gap before it. A command in backquotes is one, so that it can be copied."""


def folded(line: str, stream: TextIO) -> str:
    """Returns the line with line breaks between words if `stream` is a terminal that is too narrow, otherwise as it
    is."""
    return fold(line, shutil.get_terminal_size().columns) if stream.isatty() else line


def fold(line: str, width: int) -> str:
    """Returns the line with line breaks between its words, so that its parts fit into `width` columns. A list without
    spaces is broken after a comma. A longer word stays whole. Each part is indented like the line."""
    if len(line) <= width:
        return line
    indent = line[: len(line) - len(line.lstrip(" "))]
    parts: list[str] = []
    current = ""
    for gap, word in _WORD.findall(line):
        for piece in _pieces(word, width - len(indent)):
            joined = current + gap + piece
            if len(joined) > width and current:
                parts.append(current)
                joined = indent + piece
            current, gap = joined, ""
    return "\n".join([*parts, current])


def _pieces(word: str, width: int) -> list[str]:
    """Returns the word, or its parts between commas if it is too long."""
    if len(word) <= width or word.startswith("`"):
        return [word]
    return [piece for piece in re.split(r"(?<=,)", word) if piece]
