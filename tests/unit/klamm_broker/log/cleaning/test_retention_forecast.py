"""Tests the forecast of a log's start after retention."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_broker.log.cleaning.retention import SegmentSummary, expired_count
from klamm_broker.log.cleaning.retention_forecast import GROWTH_MS, forecast_deletion_ms, forecast_start
from klamm_broker.log.cleaning.written_bytes import written_bytes
from klamm_broker.log.log_config import LogConfig

NOW, AHEAD = 10_000, 4_000


def segments(*rows: tuple[int, int, int]) -> list[SegmentSummary]:
    return [SegmentSummary(*row) for row in rows]


def forecast(
    found: list[SegmentSummary], config: LogConfig, *, start: int = 0, mark: int = 10**9, low: int | None = None
) -> int:
    return forecast_start(
        found, config, now_ms=NOW, ahead_ms=AHEAD, log_start_offset=start, high_watermark=mark, low_offset=low
    )


THREE = segments((10, 100, 1_000), (20, 100, 5_000), (30, 100, 9_000))


@pytest.mark.parametrize(
    ("retention_ms", "start"),
    [(-1, 0), (13_000, 0), (12_999, 10), (9_000, 10), (8_999, 20), (4_999, 30)],
)
def test_the_forecast_by_time_drops_a_segment_as_soon_as_its_records_will_be_too_old(
    retention_ms: int, start: int
) -> None:
    assert forecast(THREE, LogConfig(retention_ms=retention_ms)) == start


@pytest.mark.parametrize(("retention_bytes", "start"), [(-1, 0), (276, 0), (275, 10), (175, 20), (75, 30)])
def test_the_forecast_by_size_assumes_the_growth_of_the_recent_past(retention_bytes: int, start: int) -> None:
    """The last segment grew by 75 bytes in the last 4 s, so 75 more bytes are expected in the next 4 s."""
    assert written_bytes(THREE, NOW - AHEAD) == 75
    assert forecast(THREE, LogConfig(retention_ms=-1, retention_bytes=retention_bytes)) == start


def test_an_idle_log_loses_nothing_by_size() -> None:
    idle = segments((10, 100, 100), (20, 100, 200), (30, 100, 300))
    assert forecast(idle, LogConfig(retention_ms=-1, retention_bytes=201)) == 0


def test_records_above_the_high_watermark_stay() -> None:
    assert forecast(THREE, LogConfig(retention_ms=0), mark=29) == 20


def test_the_start_never_moves_back() -> None:
    assert forecast(THREE, LogConfig(retention_ms=9_000), start=15) == 15
    assert forecast(THREE, LogConfig(retention_ms=8_999), start=15) == 20


def test_a_compacted_log_keeps_its_start() -> None:
    assert forecast(THREE, LogConfig(cleanup_policy=("compact",), retention_ms=0, retention_bytes=0)) == 0


def test_an_empty_log_has_nothing_to_lose() -> None:
    assert forecast(segments((30, 0, NOW)), LogConfig(retention_ms=0, retention_bytes=0), start=30) == 30


@pytest.mark.parametrize(
    ("since_ms", "written"),
    [(9_000, 0), (8_000, 25), (5_000, 100), (3_000, 150), (1_000, 200), (0, 200)],
)
def test_written_bytes_are_estimated_by_timestamps_without_the_oldest_segment(since_ms: int, written: int) -> None:
    assert written_bytes(THREE, since_ms) == written


def test_a_segment_whose_timestamps_go_back_counts_as_written_whole_or_not_at_all() -> None:
    back = segments((10, 100, 9_000), (20, 100, 5_000))
    assert written_bytes(back, 4_000) == 100
    assert written_bytes(back, 6_000) == 0


rows = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 50), st.integers(0, NOW)), min_size=1, max_size=8)


@given(rows, st.integers(-1, 200), st.integers(-1, 2 * NOW), st.integers(0, 40))
def test_whatever_retention_deletes_from_now_on_was_forecast(
    steps: list[tuple[int, int, int]], retention_bytes: int, retention_ms: int, mark: int
) -> None:
    """A growing log loses its oldest segments at least as early as one that does not grow."""
    end, found = 0, []
    for step, size, largest_ms in steps:
        end += step
        found.append(SegmentSummary(end, size, largest_ms))
    config = LogConfig(retention_bytes=retention_bytes, retention_ms=retention_ms)
    count = expired_count(found, config, now_ms=NOW + AHEAD, log_start_offset=0, high_watermark=mark)
    assert forecast(found, config, mark=mark) >= (found[count - 1].end_offset if count else 0)


def deletion(offset: int, config: LogConfig, *, low: int | None = None) -> int | None:
    return forecast_deletion_ms(THREE, config, now_ms=NOW, offset=offset, low_offset=low)


def test_by_time_a_record_is_deleted_with_its_segment_and_never_before_older_ones() -> None:
    config = LogConfig(retention_ms=20_000)
    assert [deletion(offset, config) for offset in (0, 9, 10, 29)] == [21_000, 21_000, 25_000, 29_000]
    late = segments((10, 100, 9_000), (20, 100, 5_000))
    assert forecast_deletion_ms(late, config, now_ms=NOW, offset=15, low_offset=None) == 29_000


def test_an_overdue_record_is_deleted_now() -> None:
    assert deletion(0, LogConfig(retention_ms=2_000)) == NOW


def test_by_size_the_log_is_assumed_to_grow_as_in_the_last_hour() -> None:
    grown = written_bytes(THREE, NOW - GROWTH_MS)
    assert grown == 200, "the first segment does not count, because its beginning is not known"
    config = LogConfig(retention_ms=-1, retention_bytes=250)
    assert deletion(0, config) == NOW + 50 * GROWTH_MS // grown
    assert deletion(15, config) == NOW + 150 * GROWTH_MS // grown
    assert deletion(0, LogConfig(retention_ms=-1, retention_bytes=200)) == NOW


def test_the_earlier_of_both_limits_counts() -> None:
    config = LogConfig(retention_ms=20_000, retention_bytes=250)
    assert deletion(0, config) == 21_000


def test_a_record_without_a_limit_or_without_growth_is_not_deleted() -> None:
    assert deletion(0, LogConfig(retention_ms=-1)) is None
    assert deletion(0, LogConfig(cleanup_policy=("compact",), retention_ms=1)) is None
    idle = segments((10, 100, 100))
    config = LogConfig(retention_ms=-1, retention_bytes=1_000)
    assert forecast_deletion_ms(idle, config, now_ms=GROWTH_MS * 2, offset=0, low_offset=None) is None


def test_the_forecast_keeps_what_a_hold_keeps() -> None:
    config = LogConfig(retention_ms=8_999, retention_hold_groups=("g",), retention_hold_max_ms=12_999)
    assert forecast(THREE, config) == 10, "the bound deletes the first segment"
    assert forecast(THREE, config, low=20) == 20


def test_a_held_record_is_deleted_when_a_bound_is_reached() -> None:
    config = LogConfig(retention_ms=20_000, retention_hold_groups=("g",), retention_hold_max_ms=50_000)
    assert deletion(0, config) == 51_000
    assert deletion(0, config, low=0) == 51_000
    assert deletion(0, config, low=1) == 21_000, "the groups have read it"
    unbounded = LogConfig(retention_ms=20_000, retention_hold_groups=("g",), retention_hold_max_ms=-1)
    assert deletion(0, unbounded) is None
