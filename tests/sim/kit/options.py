"""The options of one seed: each seed draws its faults, and how often they happen (swarm testing).

A fixed mixture hides the bugs that need much of one fault and nothing of another.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnOptions:
    """The options of a simulation are a subclass of this one with their own `draw`."""

    def describe(self) -> str:
        """Returns all on one line, without those that have their default."""
        values = ((field, getattr(self, field.name)) for field in fields(self))
        return " ".join(f"{field.name}={value}" for field, value in values if value != field.default)


def sometimes(rng: random.Random, probability: float, low: int, high: int) -> int:
    """Returns the mean of a fault that not every seed has. 0 for never."""
    return rng.randint(low, high) if rng.random() < probability else 0
