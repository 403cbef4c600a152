"""Tests times and positions as people type them."""

from __future__ import annotations

import datetime

import pytest

from klamm.errors import ConfigError
from klamm.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from klamm_cli.text.positions import Beginning, End, ExactOffset, Last, Position, Time, offsets_at, parse_position
from klamm_cli.text.times import parse_time_ms

NOW_MS = 1_767_268_800_000  # 2026-01-01T12:00:00Z


def time_ms(text: str) -> int | None:
    return parse_time_ms(text, now_ms=NOW_MS)


def position(text: str) -> Position:
    return parse_position(text, "--from", now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("text", "age_ms"), [("1500ms", 1_500), ("90s", 90_000), ("15m", 900_000), ("2h", 7_200_000), ("7d", 604_800_000)]
)
def test_an_age_means_a_time_before_now(text, age_ms):
    assert time_ms(text) == NOW_MS - age_ms


def test_an_iso_time_without_a_zone_is_local_time():
    assert time_ms("1970-01-02T00:00:00+00:00") == 86_400_000
    assert time_ms("1970-01-02T00:00:00.250Z") == 86_400_250
    local = datetime.datetime(2026, 1, 31, 12, 0)
    assert time_ms("2026-01-31T12:00") == int(local.timestamp() * 1000)
    assert time_ms("2026-01-31") == time_ms("2026-01-31T00:00:00")


def test_today_means_the_start_of_the_local_day():
    assert time_ms("now") == NOW_MS
    today = datetime.datetime.fromtimestamp(NOW_MS / 1000).date()
    assert time_ms("today") == time_ms(today.isoformat())


@pytest.mark.parametrize("text", ["1960-01-01", "99999999d", "0001-01-01T00:00:00+00:00"])
def test_a_time_before_the_epoch_becomes_the_epoch(text):
    assert time_ms(text) == 0


@pytest.mark.parametrize("text", ["", "yesterday", "15 m", "-15m", "m", "2026-13-01", "9999999-01-01", "@@1", "@", "-"])
def test_an_invalid_position_is_refused_with_the_expected_forms(text):
    with pytest.raises(ConfigError, match=r"--from .* is not a position: expected beginning, end"):
        position(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", Beginning()),
        ("earliest", Beginning()),
        ("end", End()),
        ("latest", End()),
        ("0", ExactOffset(0)),
        ("123456789", ExactOffset(123_456_789)),
        ("offset:1767225600000", ExactOffset(1_767_225_600_000)),
        ("9" * 30, ExactOffset(int("9" * 30))),
        ("-5", Last(5)),
        ("now", Time(NOW_MS)),
        ("@now", Time(NOW_MS)),
        ("15m", Time(NOW_MS - 900_000)),
        ("@15m", Time(NOW_MS - 900_000)),
        ("@1767225600000", Time(1_767_225_600_000)),
        ("@1500", Time(1_500)),
        ("@2026-01-01T00:00:00Z", Time(1_767_225_600_000)),
    ],
)
def test_positions_of_kcat_and_rpk_are_understood(text, expected):
    assert position(text) == expected


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("1767225600", ("offset:1767225600", "@1767225600")),
        ("1767225600000", ("offset:1767225600000", "@1767225600000")),
        ("@1767225600", ("@1767225600000", "@1970-01-21T10:53:45Z")),
        ("@1767225600000000", ("13 digits",)),
    ],
)
def test_an_ambiguous_position_is_refused_with_its_possible_meanings(text, choices):
    with pytest.raises(ConfigError) as refused:
        position(text)
    assert all(choice in str(refused.value) for choice in choices)


def test_each_partition_has_its_own_offset_of_a_position():
    """Partition 0 has the offsets 10 to 20, of which 13 is the first at the time 1,000. Partition 1 is empty."""
    full, empty = TopicPartition("t", 0), TopicPartition("t", 1)
    answers = {
        EARLIEST_TIMESTAMP: {full: 10, empty: 7},
        LATEST_TIMESTAMP: {full: 20, empty: 7},
        1_000: {full: 13, empty: -1},
    }

    def list_offsets(timestamps):
        return {tp: answers[timestamp_ms][tp] for tp, timestamp_ms in timestamps.items()}

    def offsets(wanted):
        return tuple(offsets_at(wanted, [full, empty], list_offsets).values())

    assert offsets(Beginning()) == (10, 7)
    assert offsets(End()) == (20, 7)
    assert offsets(ExactOffset(15)) == (15, 7)
    assert offsets(ExactOffset(0)) == (10, 7)
    assert offsets(ExactOffset(10**30)) == (20, 7)
    assert offsets(Last(5)) == (15, 7)
    assert offsets(Last(100)) == (10, 7)
    assert offsets(Time(1_000)) == (13, 7)
