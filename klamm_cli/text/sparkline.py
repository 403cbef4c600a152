"""Draws numbers over time as one line of characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_BARS: Final = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float]) -> str:
    """Returns one character for each value. Its height is the value's share of the greatest one. Values are at least
    0."""
    most = max(values, default=0)
    top = len(_BARS) - 1
    return "".join(_BARS[round(value / most * top) if most else 0] for value in values)
