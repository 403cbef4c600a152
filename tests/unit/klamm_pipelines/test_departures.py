"""Tests generated departures: ordered, endless, and fit for the pipeline flight_delays."""

from __future__ import annotations

import datetime
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_pipelines.departures import departure, parse, scheduled_at
from klamm_pipelines.flight_delays import FLIGHT_SCHEMA

NOW_S = 1_790_000_000.0
TEN_YEARS_S = 10 * 366 * 86_400.0


@given(st.floats(0, TEN_YEARS_S), st.floats(0, 3_600))
def test_departure_times_advance_with_the_clock(since_s: float, later_s: float) -> None:
    first = scheduled_at(NOW_S + since_s, 360)
    second = scheduled_at(NOW_S + since_s + later_s, 360)
    assert second - first == pytest.approx(datetime.timedelta(seconds=360 * later_s), abs=datetime.timedelta(seconds=1))


@given(st.integers(0, 2**32))
def test_each_departure_has_the_columns_of_the_pipelines_flights(seed: int) -> None:
    flight = departure(scheduled_at(NOW_S, 360), random.Random(seed))
    assert list(flight) == [column.split()[0] for column in FLIGHT_SCHEMA.split(", ")]
    assert datetime.datetime.fromisoformat(flight["scheduled"]).utcoffset() == datetime.timedelta()
    assert flight["dep_delay"] is None or flight["dep_delay"] >= -5


def test_some_departures_are_late_and_few_are_cancelled() -> None:
    rng = random.Random(7)
    delays = [departure(scheduled_at(NOW_S, 360), rng)["dep_delay"] for _ in range(10_000)]
    assert 100 < delays.count(None) < 400
    assert 1_000 < sum(delay is not None and delay >= 15 for delay in delays) < 4_000


def test_a_departure_rate_of_zero_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--rate", "0"])
    assert "expected numbers above 0" in capsys.readouterr().err
