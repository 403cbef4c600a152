"""Times as people type them."""

from __future__ import annotations

import datetime
import time

import pytest

from klamm.cli.times import parse_time_ms
from klamm.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "age_ms"), [("1500ms", 1_500), ("90s", 90_000), ("15m", 900_000), ("2h", 7_200_000), ("7d", 604_800_000)]
)
def test_an_age_is_so_long_ago(text, age_ms):
    before_ms = time.time_ns() // 1_000_000
    parsed_ms = parse_time_ms(text)
    assert before_ms <= parsed_ms + age_ms <= time.time_ns() // 1_000_000


def test_an_iso_time_has_its_zone_or_the_local_one():
    assert parse_time_ms("1970-01-02T00:00:00+00:00") == 86_400_000
    assert parse_time_ms("1970-01-02T00:00:00.250Z") == 86_400_250
    local = datetime.datetime(2026, 1, 31, 12, 0)
    assert parse_time_ms("2026-01-31T12:00") == int(local.timestamp() * 1000)
    assert parse_time_ms("2026-01-31") == parse_time_ms("2026-01-31T00:00:00")


@pytest.mark.parametrize("text", ["1960-01-01", "99999999d", "0001-01-01T00:00:00+00:00"])
def test_what_lies_before_the_epoch_is_the_epoch(text):
    assert parse_time_ms(text) == 0


@pytest.mark.parametrize("text", ["", "yesterday", "15", "15 m", "-15m", "m", "2026-13-01", "9999999-01-01"])
def test_anything_else_is_refused(text):
    with pytest.raises(ConfigError, match="is no time: expected"):
        parse_time_ms(text)
