"""Decides from two series of runs, taken in the same rounds, whether one side is slower than the other.

Runs on one machine vary by more than the 5 % that count. So the median of the rounds' ratios must be below 0.95, and
the ratio of three rounds in four as well. If both sides are equally fast and each ratio is below 0.95 in one round of
four, nine rounds look slower once in 750 times. A cell that looks slower is measured a second time, so an error needs
two of these.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

TOLERATED = 0.95
ROUNDS_SLOWER = 0.75
RATE = "rate"
"""The figure that is better the larger it is. All others are costs."""
Runs = Mapping[str, Sequence[float]]
"""The figures of one side by their names, one of each round."""


def speeds(figure: str, ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Returns the ratio of each round. More than 1 is better for us, also for a cost."""
    pairs = zip(ours, theirs, strict=True)
    return [our / their if figure == RATE else their / our for our, their in pairs]


def speed(figure: str, ours: Runs, theirs: Runs) -> float:
    """Returns the median of the rounds' ratios."""
    return statistics.median(speeds(figure, ours[figure], theirs[figure]))


def slower_figures(ours: Runs, theirs: Runs) -> list[str]:
    """Returns the figures in which `ours` are worse by more than the tolerance and the noise."""
    return [figure for figure in ours if is_slower(speeds(figure, ours[figure], theirs[figure]))]


def is_slower(ratios: Sequence[float]) -> bool:
    """Whether these ratios of rounds show a slower side."""
    below = sum(ratio < TOLERATED for ratio in ratios)
    return statistics.median(ratios) < TOLERATED and below >= math.ceil(ROUNDS_SLOWER * len(ratios))
