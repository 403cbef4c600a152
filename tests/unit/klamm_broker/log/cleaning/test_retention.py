"""Tests retention decisions against a rule that looks at one segment at a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm_broker.log.cleaning.retention import SegmentSummary, expired_count
from klamm_broker.log.log_config import LogConfig

NOW = 10_000


def segments(*rows: tuple[int, int, int]) -> list[SegmentSummary]:
    return [SegmentSummary(*row) for row in rows]


def count(found: list[SegmentSummary], config: LogConfig, *, start: int = 0, mark: int = 10**9) -> int:
    return expired_count(found, config, now_ms=NOW, log_start_offset=start, high_watermark=mark)


THREE = segments((10, 100, 1_000), (20, 100, 5_000), (30, 100, 9_000))


def test_retention_by_time_deletes_segments_older_than_the_limit() -> None:
    assert count(THREE, LogConfig(retention_ms=9_000)) == 0
    assert count(THREE, LogConfig(retention_ms=8_999)) == 1
    assert count(THREE, LogConfig(retention_ms=4_999)) == 2
    assert count(THREE, LogConfig(retention_ms=0)) == 3
    assert count(THREE, LogConfig(retention_ms=-1)) == 0


def test_retention_by_time_stops_at_the_first_segment_within_the_limit() -> None:
    found = segments((10, 100, 9_500), (20, 100, 1_000), (30, 100, 9_000))
    assert count(found, LogConfig(retention_ms=4_000)) == 0


def test_retention_by_size_keeps_at_least_the_limit() -> None:
    for limit, expected in ((301, 0), (300, 0), (201, 0), (200, 1), (101, 1), (100, 2), (1, 2), (0, 3)):
        assert count(THREE, LogConfig(retention_ms=-1, retention_bytes=limit)) == expected, limit


def test_retention_deletes_no_segment_above_the_high_watermark() -> None:
    assert count(THREE, LogConfig(retention_ms=0), mark=19) == 1
    assert count(THREE, LogConfig(retention_ms=0), mark=20) == 2
    assert count(THREE, LogConfig(retention_ms=0), mark=29) == 2


def test_an_empty_active_segment_stays() -> None:
    found = segments((10, 100, 1), (10, 0, 1))
    assert count(found, LogConfig(retention_ms=0, retention_bytes=0)) == 1


def test_segments_below_the_log_start_are_deleted_under_every_cleanup_policy() -> None:
    config = LogConfig(cleanup_policy=("compact",), retention_ms=0, retention_bytes=0)
    assert [count(THREE, config, start=start) for start in (9, 10, 19, 20, 30)] == [0, 1, 1, 2, 2]


rows = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50), st.integers(0, NOW)), min_size=1, max_size=8)


@given(rows, st.integers(-1, 200), st.integers(-1, NOW), st.integers(0, 40), st.integers(0, 40))
def test_retention_decides_like_a_rule_for_one_segment_at_a_time(
    steps: list[tuple[int, int, int]], retention_bytes: int, retention_ms: int, start: int, mark: int
) -> None:
    end, found = 0, []
    for step, size, largest in steps:
        end += step
        found.append(SegmentSummary(end, size, largest))
    config = LogConfig(retention_bytes=retention_bytes, retention_ms=retention_ms)

    expected = 0
    for reason in ("start", "size", "time"):
        while expected < len(found):
            segment, last = found[expected], expected == len(found) - 1
            if segment.end_offset > mark or (last and not segment.size_bytes):
                break
            rest = sum(other.size_bytes for other in found[expected:])
            gone = {
                "start": not last and segment.end_offset <= start,
                "size": retention_bytes >= 0 and rest - segment.size_bytes >= retention_bytes,
                "time": retention_ms >= 0 and NOW - segment.largest_timestamp_ms > retention_ms,
            }
            if not gone[reason]:
                break
            expected += 1
    assert count(found, config, start=start, mark=mark) == expected
