from __future__ import annotations

import pytest

from klamm.errors import ConfigError
from klamm_pipelines.durations import duration_ms, utc_time


@pytest.mark.parametrize(
    ("text", "expected"), [("1 second", 1000), ("90 seconds", 90_000), ("2 hours", 7_200_000), ("7days", 604_800_000)]
)
def test_a_duration_is_a_number_and_a_unit(text, expected):
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "5", "-1 hour", "1.5 hours", "1 month"])
def test_an_invalid_duration_is_refused_with_the_expected_form(text):
    with pytest.raises(ConfigError, match="expected a whole number of seconds, minutes, hours or days"):
        duration_ms(text)


def test_a_time_without_a_zone_is_utc():
    assert utc_time("2013-01-31").isoformat() == "2013-01-31T00:00:00+00:00"
    assert utc_time("2013-01-31T09:30:00-05:00").isoformat() == "2013-01-31T14:30:00+00:00"
    with pytest.raises(ConfigError, match="'noon': expected a time"):
        utc_time("noon")
