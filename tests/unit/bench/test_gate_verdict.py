"""When the speed gate calls a side slower."""

from __future__ import annotations

import random

import pytest

from bench.gate_verdict import RATE, is_slower, slower_figures, speed

CPU = "client CPU us"


def test_a_rate_that_fell_by_a_tenth_in_each_round_is_slower() -> None:
    now = {RATE: [90.0] * 9, CPU: [1.0] * 9}
    base = {RATE: [100.0] * 9, CPU: [1.0] * 9}
    assert slower_figures(now, base) == [RATE]


def test_a_cost_that_rose_by_a_tenth_in_each_round_is_slower() -> None:
    now = {RATE: [100.0] * 9, CPU: [1.1] * 9}
    base = {RATE: [100.0] * 9, CPU: [1.0] * 9}
    assert slower_figures(now, base) == [CPU]


def test_what_became_better_is_not_slower() -> None:
    now = {RATE: [200.0] * 9, CPU: [0.5] * 9}
    base = {RATE: [100.0] * 9, CPU: [1.0] * 9}
    assert slower_figures(now, base) == []
    assert (speed(RATE, now, base), speed(CPU, now, base)) == (2.0, 2.0)


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([0.96] * 9, False),
        ([0.94] * 9, True),
        ([0.5] * 6 + [1.0] * 3, False),
        ([0.5] * 7 + [1.0] * 2, True),
    ],
)
def test_three_rounds_in_four_must_be_slower(ratios: list[float], expected: bool) -> None:
    assert is_slower(ratios) is expected


def test_noise_of_a_tenth_looks_slower_in_few_of_a_thousand_runs_and_a_fifth_less_in_nearly_all() -> None:
    rng = random.Random(49)

    def found(factor: float) -> int:
        return sum(is_slower([factor * rng.gauss(1, 0.1) / rng.gauss(1, 0.1) for _ in range(9)]) for _ in range(1_000))

    assert found(1.0) < 50
    assert found(0.8) > 850
