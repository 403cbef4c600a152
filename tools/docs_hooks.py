"""What the documentation site needs beyond MkDocs: the order of the menu, and links that lead out of `docs/`.

MkDocs calls the functions that begin with `on_` (mkdocs.yml, `hooks`). The menu is made from the folders, so a new page
needs no entry anywhere. A page may link to a file of the repository, as `../../ARCHITECTURE.md`: a forge follows such a
link, the site has nothing there, so the site shows the file's path instead.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any, Final

SECTIONS: Final = ("Tutorial", "How to", "Reference", "Explanation", "Decisions")
"""The titles that MkDocs gives the folders, in the order of the menu."""
TITLES: Final = {"Grpc": "gRPC API", "Python": "Python API"}
"""The menu's names of folders whose titles from MkDocs are not good, by these titles."""

_SEARCH_BOOSTS: Final = {
    "how-to/": 4.0,
    "explanation/": 3.0,
    "tutorial/": 2.0,
    "decisions/": 0.5,
    "reference/grpc/": 0.3,
    "reference/python/": 0.5,
}

_LINK: Final = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>\.\./[^)#\s]+)(?:#[^)\s]*)?\)")


def in_reading_order(titles: list[str | None]) -> list[int]:
    """The places of `titles` in the order of the menu: pages first, then the known sections, then the others."""
    known = {title: place for place, title in enumerate(SECTIONS, start=1)}

    def rank(place: int) -> tuple[int, int]:
        return known.get(titles[place] or "", 0 if titles[place] is None else len(SECTIONS) + 1), place

    return sorted(range(len(titles)), key=rank)


def without_links_out(markdown: str, page: str) -> str:
    """The text of the page at `page` (relative to `docs/`), with links to files outside of `docs/` as plain text."""

    def plain(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), match["target"]))
        if target.startswith("docs/"):
            return match[0]
        text = match["text"].strip("`")
        return f"`{target}`" if text == target else f"{match['text']} (`{target}`)"

    return _LINK.sub(plain, markdown)


def search_boost(page: str) -> float:
    """Returns the weight of the page at `page` in a search. A reader with a task needs a guide before a decision."""
    return next((boost for folder, boost in _SEARCH_BOOSTS.items() if page.startswith(folder)), 1.0)


def on_nav(nav: Any, config: Any, files: Any) -> Any:
    """Puts the sections into the order of the menu."""
    order = in_reading_order([item.title if item.is_section else None for item in nav.items])
    nav.items = [nav.items[place] for place in order]
    _rename(nav.items)
    return nav


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Changes a page's text before it is rendered, and sets its weight in the results of a search."""
    page.meta.setdefault("search", {"boost": search_boost(page.file.src_uri)})
    return without_links_out(markdown, page.file.src_uri)


def _rename(items: list[Any]) -> None:
    for section in (item for item in items if item.is_section):
        section.title = TITLES.get(section.title, section.title)
        _rename(section.children)
