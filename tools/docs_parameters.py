"""Shows the parameters that a docstring explains as a table, in the site's reference.

A docstring explains parameters in a paragraph that begins with their names, as "value, key: bytes, or None." Each
explanation ends where the next one begins.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator


def with_parameter_tables(docstring: str, parameters: Collection[str]) -> str:
    """Returns the docstring with a table in place of each paragraph that explains `parameters`."""
    return "\n\n".join(_shown(paragraph, parameters) for paragraph in docstring.split("\n\n"))


def _shown(paragraph: str, parameters: Collection[str]) -> str:
    if not parameters:
        return paragraph
    name = f"(?:{'|'.join(map(re.escape, parameters))})"
    begin = re.compile(rf"(?:^|(?<=[.;] ))`?({name}(?:, {name})*)`?: ")
    text = " ".join(paragraph.split())
    if begin.match(text) is None:
        return paragraph
    return "\n".join(["| Parameter | Meaning |", "| --- | --- |", *_rows(begin.split(text)[1:])])


def _rows(parts: list[str]) -> Iterator[str]:
    for names, meaning in zip(parts[::2], parts[1::2], strict=True):
        shown = ", ".join(f"`{name}`" for name in names.split(", "))
        meaning = meaning.strip().replace("|", "\\|")
        yield f"| {shown} | {meaning[:1].upper()}{meaning[1:]} |"
