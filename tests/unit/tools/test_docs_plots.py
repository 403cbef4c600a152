"""Tests that the first page's bars are figures of bench/RESULTS.md."""

from __future__ import annotations

import re

import pytest

from tools.docs_plots import FIGURES, PLACE, RESULTS, Figure, pair_of, with_plots

TABLE = """
| records | produce MB/s |
|---|---|
| 1 KiB | 430 / 349 = 1.23 |
"""


def test_a_pair_of_figures_is_found_by_row_and_column() -> None:
    assert pair_of(Figure("Produce", "1 KiB", 1, "MB/s", "more"), TABLE) == (430, 349)


@pytest.mark.parametrize(("row", "column"), [("2 KiB", 1), ("1 KiB", 2), ("records", 1)])
def test_a_figure_that_is_not_there_is_an_error(row: str, column: int) -> None:
    with pytest.raises(ValueError, match=r"RESULTS\.md has no row"):
        pair_of(Figure("Produce", row, column, "MB/s", "more"), TABLE)


def test_each_plot_of_the_site_has_its_figures_and_the_longer_bar_is_the_larger_figure() -> None:
    html = with_plots(f"before {PLACE} after")
    results = RESULTS.read_text()
    shares = [float(share) for share in re.findall(r"--share: ([\d.]+)", html)]
    for number, figure in enumerate(FIGURES):
        klamm, kafka = pair_of(figure, results)
        assert f">{klamm:g} {figure.unit}<" in html
        assert (shares[2 * number] >= shares[2 * number + 1]) == (klamm >= kafka)
    assert set(shares) & {1.0}


def test_a_page_without_the_comment_is_as_it_was() -> None:
    assert with_plots("text") == "text"
