"""The order of the runs of a measurement with several sides: each round runs every side once, in a random order.

A fixed order would favour a side: the run before leaves a warm cache, dirty pages or a busy disk behind.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def rounds(sides: Sequence[T], count: int, rng: random.Random | None = None) -> Iterator[list[T]]:
    """Yields the sides of each of `count` rounds in the order of their runs. `rng` makes the order repeatable."""
    rng = rng or random.Random()
    for _ in range(count):
        yield rng.sample(sides, len(sides))
