from __future__ import annotations

import random

import pytest

from klamm.retry import Backoff


class _FixedRandom(random.Random):
    def __init__(self, fraction: float) -> None:
        super().__init__()
        self.fraction = fraction

    def random(self) -> float:
        return self.fraction


MIDDLE = _FixedRandom(0.5)


@pytest.mark.parametrize(
    ("failures", "expected_ms"), [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1000), (10**9, 1000)]
)
def test_a_backoff_doubles_up_to_its_bound(failures: int, expected_ms: int) -> None:
    assert Backoff(initial_ms=100, max_ms=1_000).delay_ms(failures, MIDDLE) == expected_ms


def test_jitter_is_twenty_percent_either_way() -> None:
    backoff = Backoff(initial_ms=100, max_ms=1_000)

    assert backoff.delay_ms(1, _FixedRandom(0.0)) == 80
    assert backoff.delay_ms(1, _FixedRandom(1.0)) == 120


def test_jitter_never_exceeds_the_bound() -> None:
    assert Backoff(initial_ms=100, max_ms=1_000).delay_ms(9, _FixedRandom(1.0)) == 1_000


def test_a_backoff_of_zero_means_no_pause() -> None:
    assert Backoff(initial_ms=0, max_ms=1_000).delay_ms(3, MIDDLE) == 0
