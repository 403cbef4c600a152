"""The random order of the sides of a measurement."""

from __future__ import annotations

import random

from bench.turns import rounds


def test_each_round_has_every_side_once() -> None:
    assert [sorted(each) for each in rounds("abc", 4)] == [["a", "b", "c"]] * 4


def test_the_order_is_random_and_a_seed_repeats_it() -> None:
    orders = list(rounds("abc", 20, random.Random(1)))
    assert orders == list(rounds("abc", 20, random.Random(1)))
    assert len({tuple(order) for order in orders}) > 1
