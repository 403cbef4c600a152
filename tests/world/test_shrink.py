from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tests.world.shrink import shrink

KINDS = ("kill", "cut", "pause", "reset")


@pytest.mark.parametrize("seed", range(20))
def test_only_the_faults_that_a_failure_needs_are_left(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randrange(3, 60)
    needed = set(rng.sample(range(count), 3))
    runs = 0

    def fails(numbers: Sequence[int]) -> bool:
        nonlocal runs
        runs += 1
        return needed <= set(numbers)

    kinds = [rng.choice(KINDS) for _ in range(count)]
    assert set(shrink(kinds, fails)) == needed
    assert runs <= 6 + len(KINDS) + count


def test_a_failure_without_faults_needs_none() -> None:
    assert shrink(["kill"] * 9, lambda numbers: True) == []


def test_the_faults_that_are_left_still_fail_when_there_is_no_more_time() -> None:
    turns = iter([True, True, False])
    kept = shrink(["kill"] * 16, lambda numbers: 9 in numbers, lambda: next(turns, False))
    assert 9 in kept
