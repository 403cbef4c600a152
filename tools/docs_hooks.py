"""What the documentation site needs beyond MkDocs: the order and groups of the menu, pages of the examples, and links
that lead out of `docs/`.

MkDocs calls the functions that begin with `on_` (mkdocs.yml, `hooks`). The menu is made from the folders, so a new page
needs no entry in mkdocs.yml. The index page of a folder lists its pages below headings, and these are the groups of the
menu. A page may link to a file of the repository, as `../../ARCHITECTURE.md`. A forge follows such a link. The site has
nothing there, so it shows the file's path instead.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from klamm.version import __version__
from tools import docs_cookbook, docs_plots, docs_tables, docs_tabs

SECTIONS: Final = ("Tutorial", "How to", "Cookbook", "Reference", "Explanation", "Decisions")
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

_FIRST: Final = "index.md"
"""The first page. It is as wide as the window, without menus beside it."""
_GROUPED: Final = "how-to/index.md"
"""The page whose headings are groups of the menu."""
_HEADING: Final = re.compile(r"^## (?P<title>.+)$", re.MULTILINE)
_PAGE_LINK: Final = re.compile(r"\]\((?P<page>[\w-]+\.md)\)")
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


class Group(NamedTuple):
    """A group of the menu."""

    title: str
    pages: Sequence[str]
    """The names of the pages' files."""


def groups_of(index: str) -> list[Group]:
    """Returns the groups of a folder's index page: its headings, and the pages that are linked below them."""
    parts = _HEADING.split(index)
    return [
        Group(title, list(dict.fromkeys(_PAGE_LINK.findall(text))))
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    ]


def search_boost(page: str) -> float:
    """Returns the weight of the page at `page` in a search. A reader with a task needs a guide before a decision."""
    return next((boost for folder, boost in _SEARCH_BOOSTS.items() if page.startswith(folder)), 1.0)


def on_config(config: Any) -> Any:
    """Shows the version below each page."""
    config.copyright = f"Klamm {__version__}"
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages of the examples."""
    from mkdocs.structure.files import File

    for page in docs_cookbook.pages():
        files.append(File.generated(config, page.uri, content=page.text))
    return files


def on_nav(nav: Any, config: Any, files: Any) -> Any:
    """Puts the sections into the order of the menu, and the guides into groups."""
    order = in_reading_order([item.title if item.is_section else None for item in nav.items])
    nav.items = [nav.items[place] for place in order]
    _rename(nav.items)
    groups = groups_of(files.get_file_from_path(_GROUPED).content_string)
    for section in nav.items:
        if section.is_section and section.children[0].file.src_uri == _GROUPED:
            section.children = _grouped(section, groups)
    _link_neighbours(nav)
    return nav


def _grouped(section: Any, groups: Sequence[Group]) -> list[Any]:
    """Returns the items of a section: its index page, and its groups. Raises KeyError for a page in two groups, and
    ValueError for a page in none."""
    from mkdocs.structure.nav import Section

    index, *pages = section.children
    by_name = {posixpath.basename(page.file.src_uri): page for page in pages}
    made = [Section(group.title, [by_name.pop(name) for name in group.pages]) for group in groups]
    if by_name:
        raise ValueError(f"docs/{_GROUPED} does not link to {', '.join(sorted(by_name))}")
    for group in made:
        group.parent = section
        for page in group.children:
            page.parent = group
    return [index, *made]


def _link_neighbours(nav: Any) -> None:
    """Sets each page's next and previous page, in the order of the menu."""
    pages = [page for item in nav.items for page in _pages_of(item)]
    for before, after in zip([None, *pages], [*pages, None], strict=True):
        if before is not None:
            before.next_page = after
        if after is not None:
            after.previous_page = before


def _pages_of(item: Any) -> Iterator[Any]:
    if item.is_page:
        yield item
    for child in item.children or ():
        yield from _pages_of(child)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Changes a page's text before it is rendered, and sets its weight in the results of a search."""
    if page.file.src_uri == _FIRST:
        page.meta.setdefault("hide", ["navigation", "toc"])
    page.meta.setdefault("search", {"boost": search_boost(page.file.src_uri)})
    markdown = docs_tabs.with_tabs(docs_plots.with_plots(markdown))
    return without_links_out(_to_cookbook(markdown), page.file.src_uri)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Changes a page's HTML after the index of the search was made of it."""
    return docs_tables.with_breaks(output)


def _to_cookbook(markdown: str) -> str:
    """Lets links to the examples lead to their pages in the site."""
    return markdown.replace("(../examples/README.md)", f"({docs_cookbook.FOLDER}/index.md)")


def _rename(items: list[Any]) -> None:
    for section in (item for item in items if item.is_section):
        section.title = TITLES.get(section.title, section.title)
        _rename(section.children)
