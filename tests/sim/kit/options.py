"""What one seed's world is like: each draws which faults there are, and how often they come (swarm testing).

A fixed mixture hides the bugs that need much of one fault and nothing of another.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnOptions:
    """The options of a simulation are a subclass with a `draw` of its own."""

    def describe(self) -> str:
        """All on one line."""
        return " ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


def sometimes(rng: random.Random, probability: float, low: int, high: int) -> int:
    """The mean of a fault that not every seed has; 0: never."""
    return rng.randint(low, high) if rng.random() < probability else 0
