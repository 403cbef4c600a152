"""Shows alternatives of a page as tabs in the site.

In a page, alternatives stand between the comments `<!-- tabs -->` and `<!-- end of tabs -->`. Each begins with a line
that has only its name in bold, as `**asyncio**`. A forge shows the names as lines of text above the alternatives.
"""

from __future__ import annotations

import re
import textwrap
from typing import Final

_TABS: Final = re.compile(r"^<!-- tabs -->\n(?P<body>.*?)^<!-- end of tabs -->$", re.MULTILINE | re.DOTALL)
_NAME: Final = re.compile(r"^\*\*(?P<name>[^*\n]+)\*\*\n", re.MULTILINE)


def with_tabs(markdown: str) -> str:
    """Returns the page's text with tabs. Raises ValueError if text stands before the first name."""
    return _TABS.sub(lambda match: _tabs(match["body"]), markdown)


def _tabs(body: str) -> str:
    before, *parts = _NAME.split(body)
    if before.strip() or not parts:
        raise ValueError(f"expected the name of a tab, as **asyncio**, before {before.strip()[:40]!r}")
    return "\n".join(
        f'=== "{name}"\n\n{textwrap.indent(text.strip(), "    ")}\n'
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    )
