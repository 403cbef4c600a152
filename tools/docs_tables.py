"""Lets long names in tables of the site break into lines after a dot, an underscore or a comma, and before a
capital letter.

A browser breaks lines at spaces. A name such as `log.message.timestamp.before.max.ms` has none, so it made its column
so wide that the last columns of the table were out of sight.
"""

from __future__ import annotations

import re
from typing import Final

_CELL: Final = re.compile(r"<td\b.*?</td>", re.DOTALL)
_TAG_OR_NAME: Final = re.compile(r"<[^>]*>|[^<\s]{18,}")
"""A tag, or a word that is longer than a narrow column."""
_JOINT: Final = re.compile(r"(?<=\w)[._,:/=]+(?=\w)|(?<=[a-z])(?=[A-Z][a-z])")
"""The place between two words of a name: after a sign, or before a capital letter."""


def with_breaks(html: str) -> str:
    """Returns a page in which the long names of tables may break. What a reader copies has no mark of it."""
    return _CELL.sub(lambda cell: _TAG_OR_NAME.sub(_broken, cell[0]), html)


def _broken(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith("<") else _JOINT.sub(r"\g<0><wbr>", match[0])
