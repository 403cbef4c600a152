"""Tests that the site's menu has the folders in reading order, and that its pages have no dead links."""

from __future__ import annotations

import pytest

from tools.docs_hooks import Group, groups_of, in_reading_order, search_boost, without_links_out


def ordered(*titles: str | None) -> list[str | None]:
    return [titles[place] for place in in_reading_order(list(titles))]


def test_pages_come_before_sections_and_sections_are_in_reading_order() -> None:
    assert ordered("Decisions", None, "How to", "Tutorial") == [None, "Tutorial", "How to", "Decisions"]


def test_a_section_that_is_not_known_comes_last() -> None:
    assert ordered("Appendix", "Reference", "Blog") == ["Reference", "Appendix", "Blog"]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("see [Results](../../bench/RESULTS.md#security).", "see Results (`bench/RESULTS.md`)."),
        ("[LICENSE](../../LICENSE)", "`LICENSE`"),
        ("[`klamm/errors.py`](../../klamm/errors.py)", "`klamm/errors.py`"),
        ("[Settings](../reference/settings.md#topics)", "[Settings](../reference/settings.md#topics)"),
        ("[here](#audit) and [there](other.md)", "[here](#audit) and [there](other.md)"),
    ],
)
def test_a_link_out_of_the_site_becomes_a_path(written: str, shown: str) -> None:
    assert without_links_out(written, "how-to/security.md") == shown


def test_the_groups_of_the_menu_are_the_headings_of_the_index_page() -> None:
    start, run = "- [One](one.md)\n- [Two](two.md#part), [one](one.md)\n", "- [Three](three.md)\n"
    index = f"# Guides\n\n## Start\n\n{start}\n## Run\n\n{run}"
    assert groups_of(index) == [Group("Start", ["one.md"]), Group("Run", ["three.md"])]


def test_a_search_shows_guides_before_decisions_and_contracts() -> None:
    pages = ["how-to/tune.md", "explanation/quorum.md", "index.md", "decisions/index.md", "reference/grpc/broker.md"]
    boosts = [search_boost(page) for page in pages]
    assert boosts == sorted(boosts, reverse=True)
    assert len(set(boosts)) == len(boosts)
