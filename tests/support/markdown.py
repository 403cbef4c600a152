"""The links in the project's Markdown pages, and the anchors of their headings, as a forge makes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_FENCE: Final = re.compile(r"^(?P<indent> *)(?P<mark>```+|~~~+).*?^ *(?P=mark) *$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"(?<!`)(`+)(?!`)(?:(?!\n\s*\n).)+?(?<!`)\1(?!`)", re.DOTALL)
_LINK: Final = re.compile(
    r"\]\(\s*<?(?P<inline>[^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^ {0,3}\[[^\]]+\]:\s*(?P<named>\S+)", re.MULTILINE
)
_HEADING: Final = re.compile(r"^ {0,3}#{1,6}\s+(?P<text>.+?)\s*#*\s*$", re.MULTILINE)
_SET_ANCHOR: Final = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")
_MARKED_LINK: Final = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_NOT_IN_ANCHOR: Final = re.compile(r"[^\w\- ]")
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)


class Link(NamedTuple):
    """A link of a page."""

    line: int
    """The number of the line, from 1 on."""
    target: str
    """The path or address, empty for the page itself."""
    anchor: str
    """The text after the `#`. Empty if there is none."""


def links(text: str) -> Iterator[Link]:
    """Yields the links of a page in order, except for those in code."""
    prose = _blank(_CODE, without_code(text))
    for match in _LINK.finditer(prose):
        target, _, anchor = (match["inline"] or match["named"]).partition("#")
        yield Link(prose.count("\n", 0, match.start()) + 1, target, anchor)


def anchors(text: str) -> set[str]:
    """Returns the anchors of a page's headings, and those that the page sets itself.

    The anchor of a repeated heading ends with the number of the repetition, as on GitHub and GitLab.
    """
    found: set[str] = set()
    seen: dict[str, int] = {}
    for match in _HEADING.finditer(without_code(text)):
        anchor = anchor_of(match["text"])
        again = seen.get(anchor, 0)
        seen[anchor] = again + 1
        found.add(f"{anchor}-{again}" if again else anchor)
    return found | set(_SET_ANCHOR.findall(text))


def without_code(text: str) -> str:
    """Returns the text with blocks of code and comments as empty lines, so that line numbers stay."""
    return _blank(_FENCE, _blank(_COMMENT, text))


def anchor_of(heading: str) -> str:
    """Returns the anchor of one heading: lower case, spaces as hyphens, without punctuation."""
    plain = _MARKED_LINK.sub(r"\1", heading).replace("`", "")
    return _NOT_IN_ANCHOR.sub("", plain.lower()).replace(" ", "-")


def _blank(pattern: re.Pattern[str], text: str) -> str:
    """Returns `text` with every match replaced by its line breaks, so that line numbers stay."""
    return pattern.sub(lambda match: "\n" * match[0].count("\n"), text)
