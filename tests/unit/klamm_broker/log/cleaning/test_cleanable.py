"""Tests how dirty a log is, which part may be cleaned, and which segments are merged."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from klamm.model import TopicPartition
from klamm_broker.log.cleaning.cleanable import LogToClean, SealedSegment, group_by_size, log_to_clean
from klamm_broker.log.log_config import LogConfig

NAME = TopicPartition("states", 0)
NOW = 100_000


def segments(*sizes: int, start: int = 0) -> list[SealedSegment]:
    """Returns segments of ten records each, written at 1,000, 2,000 ..."""
    return [
        SealedSegment(start + 10 * at, start + 10 * at + 10, size, 1_000 * (at + 1)) for at, size in enumerate(sizes)
    ]


def found(
    sealed: list[SealedSegment], *, cleaned_to: int = 0, limit: int = 10**6, now_ms: int = NOW, **config: Any
) -> LogToClean:
    return log_to_clean(
        NAME,
        sealed,
        cleaned_to_offset=cleaned_to,
        limit_offset=limit,
        config=LogConfig(**config),
        now_ms=now_ms,
    )


def offsets(to_clean: LogToClean) -> tuple[int, int]:
    return to_clean.first_dirty_offset, to_clean.first_uncleanable_offset


def amounts(to_clean: LogToClean) -> tuple[int, int, int]:
    return to_clean.clean_bytes, to_clean.cleanable_bytes, to_clean.uncleanable_bytes


def test_a_log_that_was_never_cleaned_is_all_dirty() -> None:
    to_clean = found(segments(100, 100, 200))
    assert (offsets(to_clean), amounts(to_clean), to_clean.cleanable_ratio) == ((0, 30), (0, 400, 0), 1.0)


def test_the_cleanable_ratio_divides_cleanable_bytes_by_all_bytes_below_the_limit() -> None:
    to_clean = found(segments(100, 100, 200, 800), cleaned_to=20, limit=30)
    assert (offsets(to_clean), amounts(to_clean), to_clean.cleanable_ratio) == ((20, 30), (200, 200, 800), 0.5)


def test_a_segment_cleaned_in_part_counts_as_dirty() -> None:
    assert amounts(found(segments(100, 100), cleaned_to=15)) == (100, 100, 0)


def test_a_segment_that_reaches_beyond_the_limit_is_not_cleanable() -> None:
    assert offsets(found(segments(100, 100, 100), limit=29)) == (0, 20)
    assert offsets(found(segments(100, 100, 100), limit=9)) == (0, 0)


def test_a_cleaner_checkpoint_before_the_log_start_counts_as_the_log_start() -> None:
    assert offsets(found(segments(100, start=50), cleaned_to=3)) == (50, 60)


def test_a_log_with_only_an_active_segment_has_nothing_to_clean() -> None:
    to_clean = found([])
    assert (amounts(to_clean), to_clean.cleanable_ratio) == ((0, 0, 0), 0.0)


def test_records_younger_than_the_min_compaction_lag_are_not_cleanable() -> None:
    sealed = segments(100, 100, 100)
    assert offsets(found(sealed, now_ms=3_500, min_compaction_lag_ms=2_000)) == (0, 10)
    assert offsets(found(sealed, now_ms=3_500, min_compaction_lag_ms=0)) == (0, 30)
    assert offsets(found(sealed, now_ms=4_000, min_compaction_lag_ms=2_000)) == (0, 20)


def test_the_min_compaction_lag_does_not_apply_to_records_that_are_already_clean() -> None:
    sealed = segments(100, 100, 100)
    assert offsets(found(sealed, now_ms=1_000, min_compaction_lag_ms=5_000, cleaned_to=20)) == (20, 20)


@given(
    st.lists(st.integers(0, 1_500), max_size=20),
    st.integers(1, 400),
    st.sampled_from([0, 100]),
    st.sampled_from([120, 10**6]),
)
def test_adjacent_segments_are_merged_up_to_the_size_limits(
    sizes: list[int], span: int, interval_bytes: int, index_bytes: int
) -> None:
    sealed = [SealedSegment(at * span * 10**7, (at + 1) * span * 10**7, size, 0) for at, size in enumerate(sizes)]
    config = LogConfig(segment_bytes=1_000, index_interval_bytes=interval_bytes, segment_index_bytes=index_bytes)
    groups = list(group_by_size(sealed, config))
    assert [segment for group in groups for segment in group] == sealed
    room = min(1_000, index_bytes // 12 * max(1, interval_bytes))
    for group in groups:
        assert group
        assert len(group) == 1 or sum(segment.size_bytes for segment in group) <= room
        assert len(group) == 1 or group[-1].end_offset - group[0].base_offset <= 2**31 - 1
    for group, following in itertools.pairwise(groups):
        assert (
            sum(segment.size_bytes for segment in group) + following[0].size_bytes > room
            or following[0].end_offset - group[0].base_offset > 2**31 - 1
        )
