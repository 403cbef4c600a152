"""Makes a page of the site from each example: its README, and its programs below it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

EXAMPLES: Final = Path(__file__).resolve().parents[1] / "examples"
FOLDER: Final = "cookbook"
"""The folder of the pages in the site."""


class Page(NamedTuple):
    """A page of the site that no file of `docs/` has."""

    uri: str
    """The path that the page's file would have in `docs/`."""
    text: str


def pages(examples: Path = EXAMPLES) -> Iterator[Page]:
    """Yields the page of each example, and first the page with the list of them."""
    overview = (examples / "README.md").read_text(encoding="utf-8")
    yield Page(f"{FOLDER}/index.md", overview.replace("/README.md)", ".md)").replace("# Examples", "# Cookbook", 1))
    for readme in sorted(examples.glob("*/README.md")):
        yield Page(f"{FOLDER}/{readme.parent.name}.md", page_of(readme))


def page_of(readme: Path) -> str:
    """Returns the text of one example's page. Its test is the last program."""
    programs = sorted(readme.parent.glob("*.py"), key=lambda path: (path.name.startswith("test_"), path.name))
    parts = [readme.read_text(encoding="utf-8").rstrip()]
    parts += [f"## `{path.name}`\n\n```python\n{path.read_text(encoding='utf-8').rstrip()}\n```" for path in programs]
    return "\n\n".join(parts) + "\n"
