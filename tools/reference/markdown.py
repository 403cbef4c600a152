"""Parts of generated pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

_IDENTIFIER: Final = re.compile(r"(?<![\w./-])_*[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+(?![\w/])")
_CODE: Final = re.compile(r"(`[^`]*`)")


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, with an empty one behind it; none if there are no rows."""
    listed = [_row(row) for row in rows]
    if listed:
        yield _row(titles)
        yield "|" + " --- |" * len(titles)
        yield from listed
        yield ""


def prose(text: str) -> str:
    """Text of a comment, as Markdown: names with underscores are code, and nothing else is marked up."""
    parts = _CODE.split(text)
    return "".join(part if part.startswith("`") else _plain(part) for part in parts)


def _plain(text: str) -> str:
    escaped = text.replace("<", "&lt;").replace("*", r"\*")
    return _IDENTIFIER.sub(lambda match: f"`{match[0]}`", escaped)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", r"\|") for cell in cells) + " |"
