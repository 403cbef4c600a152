"""Tests what retention deletes of a log with a hold, against a rule that looks at one segment at a time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_broker.log.cleaning.retention import SegmentSummary, expired_count
from klamm_broker.log.cleaning.retention_hold import GROWTH_WINDOW_MS, NO_GROUP, HoldDecision, decide
from klamm_broker.log.log_config import LogConfig

NOW = 10_000


def segments(*rows: tuple[int, int, int]) -> list[SegmentSummary]:
    return [SegmentSummary(*row) for row in rows]


THREE = segments((10, 100, 1_000), (20, 100, 5_000), (30, 100, 9_000))


def held(**settings: Any) -> LogConfig:
    """Returns a config by which retention alone deletes all of THREE, and which holds for ever by default."""
    defaults = {"retention_ms": 0, "retention_hold_max_ms": -1, "retention_hold_groups": ("g",)}
    return LogConfig(**(defaults | settings))


def decided(
    found: list[SegmentSummary], config: LogConfig, low: int | None, *, start: int = 0, mark: int = 10**9
) -> HoldDecision:
    return decide(found, config, now_ms=NOW, log_start_offset=start, high_watermark=mark, low_offset=low)


@pytest.mark.parametrize(("low", "count"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (30, 3), (NO_GROUP.offset, 3)])
def test_only_segments_that_the_groups_have_read_are_deleted(low: int, count: int) -> None:
    decision = decided(THREE, held(), low)
    assert (decision.segment_count, decision.unread_count) == (count, 0)
    assert decision.log_start_offset == 10 * count
    assert decision.held_bytes == 100 * (3 - count)


def test_nothing_is_deleted_while_the_offsets_are_not_known() -> None:
    assert decided(THREE, held(), None) == HoldDecision(0, 0, 0, 300, None)


def test_read_segments_stay_until_retention_deletes_them() -> None:
    assert decided(THREE, held(retention_ms=4_999), 30) == HoldDecision(2, 20, 0, 0, None)
    assert decided(THREE, held(retention_ms=-1), 30) == HoldDecision(0, 0, 0, 0, None)
    assert decided(THREE, held(retention_ms=-1, retention_bytes=200), 30) == HoldDecision(1, 10, 0, 0, None)


@pytest.mark.parametrize("low", [None, 0])
@pytest.mark.parametrize(("max_ms", "count"), [(9_000, 0), (8_999, 1), (5_000, 1), (4_999, 2), (0, 3)])
def test_the_bound_by_age_deletes_unread_records(low: int | None, max_ms: int, count: int) -> None:
    decision = decided(THREE, held(retention_hold_max_ms=max_ms), low)
    assert (decision.segment_count, decision.unread_count) == (count, 10 * count)


@pytest.mark.parametrize("low", [None, 0])
@pytest.mark.parametrize(("max_bytes", "count"), [(300, 0), (201, 0), (200, 1), (100, 2), (0, 3)])
def test_the_bound_by_size_deletes_unread_records(low: int | None, max_bytes: int, count: int) -> None:
    decision = decided(THREE, held(retention_hold_max_bytes=max_bytes), low)
    assert (decision.segment_count, decision.unread_count) == (count, 10 * count)


def test_a_bound_counts_only_the_records_that_the_groups_have_not_read() -> None:
    decision = decided(THREE, held(retention_hold_max_ms=4_999), 13)
    assert (decision.log_start_offset, decision.unread_count) == (20, 7)
    decision = decided(THREE, held(retention_hold_max_ms=4_999), 0, start=15)
    assert (decision.log_start_offset, decision.unread_count) == (20, 5)


def test_a_bound_that_is_smaller_than_retention_deletes_nothing_earlier() -> None:
    config = held(retention_ms=5_000, retention_hold_max_ms=0, retention_hold_max_bytes=0)
    assert decided(THREE, config, 0).segment_count == 1


def test_deleted_records_are_not_held() -> None:
    assert decided(THREE, held(), 0, start=20) == HoldDecision(2, 20, 0, 100, None)
    assert decided(THREE, held(), None, start=15).segment_count == 1


def test_records_above_the_high_watermark_are_deleted_for_no_bound() -> None:
    assert decided(THREE, held(retention_hold_max_ms=0), 30, mark=20).segment_count == 2


def test_an_empty_active_segment_stays() -> None:
    found = segments((10, 100, 1), (10, 0, NOW))
    assert decided(found, held(retention_hold_max_ms=0), None).segment_count == 1


def test_the_bound_by_age_is_due_when_the_first_held_segment_is_too_old() -> None:
    assert decided(THREE, held(retention_hold_max_ms=9_500), 0).bound_due_ms == 10_500
    assert decided(THREE, held(retention_hold_max_ms=9_500), 10).bound_due_ms == 14_500
    assert decided(THREE, held(retention_hold_max_ms=9_500), 30).bound_due_ms is None, "nothing is held"


def test_the_bound_by_size_is_due_when_the_log_has_grown_enough() -> None:
    """The last two segments, of 200 bytes, were written within the window. 50 bytes more reach the bound."""
    due_ms = decided(THREE, held(retention_hold_max_bytes=250), 0).bound_due_ms
    assert due_ms == NOW + 50 * GROWTH_WINDOW_MS // 200
    both = held(retention_hold_max_bytes=250, retention_hold_max_ms=9_500)
    assert decided(THREE, both, 0).bound_due_ms == 10_500
    assert decided(THREE[:1], held(retention_hold_max_bytes=250), 0).bound_due_ms is None, "the log does not grow"


rows = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50), st.integers(0, NOW)), min_size=1, max_size=8)
limits = st.integers(-1, 400)
times = st.integers(-1, NOW)


@given(
    rows=rows,
    start=st.integers(0, 20),
    mark=st.integers(0, 40),
    low=st.none() | st.integers(0, 45),
    sizes=st.tuples(limits, limits),
    ages=st.tuples(times, times),
)
def test_each_segment_is_deleted_by_a_rule_of_its_own(
    rows: list[tuple[int, int, int]],
    start: int,
    mark: int,
    low: int | None,
    sizes: tuple[int, int],
    ages: tuple[int, int],
) -> None:
    found, end = [], 0
    for records, size, timestamp in rows:
        end += records
        found.append(SegmentSummary(end, size, timestamp))
    config = held(
        retention_bytes=sizes[0],
        retention_hold_max_bytes=sizes[1],
        retention_ms=ages[0],
        retention_hold_max_ms=ages[1],
    )
    expired = expired_count(found, config, now_ms=NOW, log_start_offset=start, high_watermark=mark)
    decision = decided(found, config, low, start=start, mark=mark)
    assert decision.segment_count <= expired, "a hold only keeps"
    for number, segment in enumerate(found[:expired]):
        is_read = segment.end_offset <= (start if low is None else max(start, low))
        left_bytes = sum(one.size_bytes for one in found[number + 1 :])
        is_too_large = 0 <= config.retention_hold_max_bytes <= left_bytes
        was_too_large = number > 0 and not is_too_large
        if number >= decision.segment_count:
            assert not is_read
            assert not is_too_large
            break
        is_too_old = config.retention_hold_max_ms >= 0 and segment.largest_timestamp_ms < NOW - ages[1]
        assert is_read or is_too_large or is_too_old or was_too_large
    assert decision.log_start_offset == max([start, *(one.end_offset for one in found[: decision.segment_count])])
    assert decision.held_bytes == sum(one.size_bytes for one in found[decision.segment_count : expired])
