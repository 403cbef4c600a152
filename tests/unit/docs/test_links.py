"""Tests that every relative link of our pages leads to a file, and its anchor to a heading there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support import markdown
from tests.support.markdown import Link

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "deploy/*.md", "bench/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
)
ELSEWHERE = ("http://", "https://", "mailto:")
"""How links begin that are not looked after: the tests need no network."""


@cache
def anchors(path: Path) -> set[str]:
    return markdown.anchors(path.read_text())


def broken(page: Path) -> Iterator[str]:
    for link in markdown.links(page.read_text()):
        if not link.target.startswith(ELSEWHERE) and (why := fault(page, link)):
            yield f"line {link.line}: {why}"


def fault(page: Path, link: Link) -> str:
    """Returns the fault of a link, or an empty string if it has none."""
    target = (page.parent / link.target).resolve() if link.target else page
    if link.target.startswith("/") or not target.is_relative_to(ROOT):
        return f"{link.target} is no path inside the repository"
    if not target.exists():
        return f"{link.target} does not exist"
    if link.anchor and target.suffix == ".md" and link.anchor not in anchors(target):
        return f"{link.target or page.name} has no heading for #{link.anchor}"
    return ""


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_an_existing_page_and_heading(page: str) -> None:
    assert not list(broken(ROOT / page))


def test_links_of_a_broken_page_are_found(tmp_path: Path) -> None:
    page = ROOT / "docs" / "index.md"
    faults = [
        fault(page, link)
        for link in markdown.links(
            "[a](nowhere.md) [b](#no-such) [c](/etc/hosts) [d](../../x.md) [e](reference/settings.md#topics)"
        )
    ]
    assert faults == [
        "nowhere.md does not exist",
        "index.md has no heading for #no-such",
        "/etc/hosts is no path inside the repository",
        "../../x.md is no path inside the repository",
        "",
    ]


def test_links_in_code_and_comments_are_ignored() -> None:
    text = "`[a](b.md)`\n```\n[c](d.md)\n```\n<!-- [e](f.md) -->\n![i](j.svg) [g](h.md#k)\n[l]: m.md\n"
    assert list(markdown.links(text)) == [Link(6, "j.svg", ""), Link(6, "h.md", "k"), Link(7, "m.md", "")]


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        (
            "From plain text to a secured cluster, without downtime",
            "from-plain-text-to-a-secured-cluster-without-downtime",
        ),
        ("`log.dirs`: where", "logdirs-where"),
        ("[Audit](x.md) - who", "audit---who"),
        ("What an ack means", "what-an-ack-means"),
    ],
)
def test_a_heading_has_the_anchor_that_a_forge_makes(heading: str, anchor: str) -> None:
    assert markdown.anchor_of(heading) == anchor


def test_a_heading_that_comes_again_is_numbered() -> None:
    assert markdown.anchors("# A\n## B\n## B\n```\n# no heading\n```\n") == {"a", "b", "b-1"}
