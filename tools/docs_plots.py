"""Draws figures of bench/RESULTS.md as bars, for the first page of the site.

The page has the comment `<!-- plot: beside Apache Kafka -->`, which a forge does not show. The figures are cells of
tables in RESULTS.md that have the form "Klamm / Kafka", such as "430 / 349 = 1.23".
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

RESULTS: Final = Path(__file__).resolve().parents[1] / "bench" / "RESULTS.md"
PLACE: Final = "<!-- plot: beside Apache Kafka -->"
_PAIR: Final = re.compile(r"(?P<klamm>[\d.]+) / (?P<kafka>[\d.]+)")


class Figure(NamedTuple):
    """A cell of RESULTS.md, and what it is."""

    title: str
    row: str
    """The text of the row's first cell."""
    column: int
    unit: str
    is_better: str
    """"more" or "less"."""


FIGURES: Final = (
    Figure("Produce on one node, 1 KiB", "1 KiB, tuned", 1, "MB/s", "more"),
    Figure("Produce on three nodes, 1 KiB", "three nodes, 1 KiB, client's defaults", 1, "MB/s", "more"),
    Figure("Consume on one node, 1 KiB", "1 KiB, tuned", 3, "MB/s", "more"),
    Figure("p99 from send to poll, 10,000 records/s", "10,000 records/s", 2, "ms", "less"),
    Figure("Start to first acknowledged produce", "start to first acknowledged produce", 1, "s", "less"),
    Figure("Resident memory, idle", "resident, idle", 1, "MB", "less"),
)


def with_plots(markdown: str, results: str | None = None) -> str:
    """Returns the page's text with bars in place of the comment. Raises ValueError if a figure is not in `results`."""
    if PLACE not in markdown:
        return markdown
    found = RESULTS.read_text(encoding="utf-8") if results is None else results
    plots = "\n".join(_plot(figure, *pair_of(figure, found)) for figure in FIGURES)
    return markdown.replace(PLACE, f'<div class="plots">\n{plots}\n</div>')


def pair_of(figure: Figure, results: str) -> tuple[float, float]:
    """Returns the figures of Klamm and of Kafka. Raises ValueError if no row has them."""
    for line in results.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == figure.row and len(cells) > figure.column and (pair := _PAIR.match(cells[figure.column])):
            return float(pair["klamm"]), float(pair["kafka"])
    raise ValueError(f"bench/RESULTS.md has no row {figure.row!r} with a pair of figures in column {figure.column}")


def _plot(figure: Figure, klamm: float, kafka: float) -> str:
    most = max(klamm, kafka)
    bars = "".join(
        f'<span class="plot-name">{name}</span><span class="plot-bar plot-{name.lower()}"'
        f' style="--share: {value / most:.3f}"></span><span class="plot-value">{value:g} {figure.unit}</span>'
        for name, value in (("Klamm", klamm), ("Kafka", kafka))
    )
    return (
        f'<figure class="plot"><figcaption>{figure.title}<small>{figure.is_better} is better</small></figcaption>'
        f'<div class="plot-rows">{bars}</div></figure>'
    )
