"""Tests that the checks of the workload "spark" find lost, doubled and wrong output."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from tests.chaos.klammchaos.spark_checks import copy_violations, delay_violations

HOURS = pd.DataFrame(
    {"departures": [2, 0], "mean_delay": [1.5, float("nan")]},
    index=pd.MultiIndex.from_tuples(
        [("EWR", pd.Timestamp("2013-01-01T10:00:00Z")), ("JFK", pd.Timestamp("2013-01-01T11:00:00Z"))],
        names=["origin", "hour"],
    ),
)
VALUES = [
    json.dumps({"origin": "EWR", "hour": "2013-01-01T10:00:00Z", "departures": 2, "mean_delay": 1.5}).encode(),
    json.dumps({"origin": "JFK", "hour": "2013-01-01T11:00:00Z", "departures": 0}).encode(),
]


def test_a_correct_copy_and_correct_delays_are_no_violation():
    assert list(copy_violations([2, 0, 1], 3)) == []
    assert list(delay_violations(VALUES, HOURS)) == []


@pytest.mark.parametrize(
    ("copies", "story"),
    [
        ([0, 2], "1 number(s) lost: 1"),
        ([0, 1, 1, 2], "1 number(s) written more than once: 1 (2 times)"),
        ([0, 1, 2, 3], "1 number(s) never asked for: 3"),
    ],
)
def test_a_copy_with_missing_or_doubled_records_is_a_violation(copies, story):
    assert list(copy_violations(copies, 3)) == [story]


@pytest.mark.parametrize(
    ("values", "story"),
    [
        (VALUES[:1], "1 hour(s) lost"),
        ([*VALUES, VALUES[0]], "1 hour(s) written more than once"),
        ([VALUES[0].replace(b"1.5", b"1.25"), VALUES[1]], "mean_delay of "),
        ([VALUES[0], VALUES[1].replace(b'"departures": 0', b'"departures": 7')], "departures of "),
    ],
)
def test_a_delay_figure_that_differs_from_pandas_is_a_violation(values, story):
    (violation,) = delay_violations(values, HOURS)
    assert story in violation
