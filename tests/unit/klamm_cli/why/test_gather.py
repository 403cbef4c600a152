"""Tests the rates that follow from offsets at times, and the keys of a sample."""

from __future__ import annotations

from collections import Counter

import pytest

from klamm.model import TopicPartition
from klamm.offsets import OffsetAndTimestamp
from klamm_cli.why.facts import Written
from klamm_cli.why.gather import key_sample, written

NOW, MINUTE = 1_700_000_000_000, 60_000
TP = TopicPartition("t", 0)
NONE = OffsetAndTimestamp(-1, -1)


def at(offset: int, ago_ms: int) -> OffsetAndTimestamp:
    return OffsetAndTimestamp(offset, NOW - ago_ms)


def test_rates_follow_from_the_first_records_of_three_times() -> None:
    found = written(10_000, at(9_400, MINUTE), at(7_000, 10 * MINUTE), at(1_000, 70 * MINUTE), NOW)
    assert found == Written(3_000, 10.0, 6_000 / 3_600)


def test_a_young_partition_has_no_rate_of_before() -> None:
    found = written(600, at(0, MINUTE), at(0, MINUTE), at(0, MINUTE), NOW)
    assert found == Written(600, 10.0, None)
    old_enough = written(1_200, at(1_100, MINUTE), at(600, 10 * MINUTE), at(0, 20 * MINUTE), NOW)
    assert old_enough.before_per_s == pytest.approx(1.0)


def test_a_partition_without_records_in_a_time_has_none() -> None:
    assert written(500, NONE, NONE, NONE, NOW) == Written(0, 0.0, None)
    quiet = written(500, NONE, NONE, at(140, 70 * MINUTE), NOW)
    assert quiet == Written(0, 0.0, 0.1)


def test_the_most_frequent_keys_have_their_share() -> None:
    found = key_sample(TP, Counter({b"a": 70, b"\xff": 20, None: 10}))
    assert (found.record_count, found.keys[0].key, found.keys[0].share) == (100, "a", 0.7)
    assert [key.key for key in found.keys] == ["a", "\\xff"]
    assert key_sample(TP, Counter()).keys == []
