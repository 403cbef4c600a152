"""The seed of all random values in tests.

The seed is the same in every run, so that a test has the same result for everybody. `TEST_SEED=N` sets another one,
`TEST_SEED=random` draws one. A test that uses the seed prints it, and how to run it again.
"""

from __future__ import annotations

import os
import random

FIXED = 20_261_122
_SEEDS = 1_000_000_000


def run_seed() -> int:
    """Returns a number from 0 to 999,999,999. Raises ValueError if TEST_SEED is neither `random` nor a number."""
    chosen = os.environ.get("TEST_SEED", str(FIXED))
    return random.SystemRandom().randrange(_SEEDS) if chosen == "random" else int(chosen) % _SEEDS


def examples(count: int) -> int:
    """Returns how many examples a property test draws. They are `count` with a seed that the user set, else a third.
    Those of the fixed seed are the same in every run and have passed before. `make fresh-seeds` draws all."""
    return count if "TEST_SEED" in os.environ else -(-count // 3)
