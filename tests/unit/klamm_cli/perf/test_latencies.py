"""Tests the percentiles of latencies."""

from __future__ import annotations

import random
import sys

import pytest

from klamm_cli.perf.latencies import Latencies


def latencies(values_s):
    made = Latencies()
    for each in values_s:
        made.add(each)
    return made


def test_without_latencies_there_is_no_percentile():
    assert latencies([]).percentile_ms(99) is None


def test_percentiles_are_those_of_all_values_to_half_of_a_percent():
    rng = random.Random(1)
    values = sorted(rng.lognormvariate(-5, 2) for _ in range(10_000))
    made = latencies(values)
    for percent in (1, 50, 99, 99.9, 100):
        exact_ms = values[round(len(values) * percent / 100) - 1] * 1000
        assert made.percentile_ms(percent) == pytest.approx(exact_ms, rel=0.006)


def test_times_that_no_clock_can_tell_from_zero_count_as_a_microsecond():
    assert latencies([0.0, -1.0]).percentile_ms(100) == pytest.approx(0.001, rel=0.01)


def test_a_million_latencies_take_the_memory_of_some_hundred():
    made = latencies(1e-6 * 1.00002**number for number in range(1_000_000))
    assert sys.getsizeof(made._counts) < 200_000
    assert made.percentile_ms(50) == pytest.approx(1e-3 * 1.00002**500_000, rel=0.006)
