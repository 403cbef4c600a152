"""Measures each cell of a matrix on a topic of its own, in turns, and returns the median of each cell's runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from klamm_cli.console.progress import ProgressBar
from klamm_cli.perf.load import Load
from klamm_cli.perf.matrix import Cell
from klamm_cli.perf.measurement import Measurement, median
from klamm_cli.perf.own_topic import TopicShape, own_topic

if TYPE_CHECKING:
    from klamm import Admin

Measure = Callable[[str, Cell, Load], Measurement]
"""Measures a cell with a load on the topic of this name."""


def measure_cells(
    admin: Admin, cells: Sequence[Cell], measure: Measure, *, load: Load, shape: TopicShape, runs: int
) -> list[Measurement]:
    """Returns a measurement of each cell, in their order. Before the first one, a short load warms up and does not
    count. The runs of a cell alternate with those of the others, so that a change of the machine's load affects
    all."""

    def on_own_topic(cell: Cell, load: Load) -> Measurement:
        with own_topic(admin, shape, fsync=cell.fsync) as topic:
            return measure(topic, cell, load)

    on_own_topic(cells[0], load.warm_up())
    done: list[list[Measurement]] = [[] for _ in cells]
    with ProgressBar("measuring", runs * len(cells)) as bar:
        for run in range(runs):
            for number, cell in enumerate(cells):
                bar.show(run * len(cells) + number, cell.describe())
                done[number].append(on_own_topic(cell, load))
    return [median(measurements) for measurements in done]
