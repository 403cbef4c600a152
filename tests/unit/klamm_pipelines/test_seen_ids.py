"""Tests duplicates by event time against all ids that were ever seen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm_pipelines.seen_ids import Arrival, SeenIds

WINDOW_MS = 10


def test_a_record_is_first_duplicate_or_late():
    seen = SeenIds(WINDOW_MS)
    assert seen.judge("a", 100) is Arrival.FIRST
    assert seen.judge("a", 110) is Arrival.DUPLICATE
    assert seen.judge("a", 100) is Arrival.DUPLICATE, "still in time"
    assert seen.judge("b", 111) is Arrival.FIRST
    assert seen.judge("b", 100) is Arrival.LATE
    assert seen.judge("a", 111) is Arrival.FIRST, "a window and more after the first of its id"


@given(
    records=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60)), max_size=60),
    packs=st.sets(st.integers(0, 60)),
)
def test_forgotten_ids_change_no_verdict(records, packs):
    """Packing at any time changes no verdict. The reference keeps every id."""
    seen = SeenIds(WINDOW_MS)
    firsts: dict[str, int] = {}
    clock_ms = -(10**9)
    for index, (record_id, time_ms) in enumerate(records):
        if index in packs:
            seen = SeenIds(WINDOW_MS, seen.packed())
        if time_ms < clock_ms - WINDOW_MS:
            expected = Arrival.LATE
        elif record_id in firsts and abs(time_ms - firsts[record_id]) <= WINDOW_MS:
            expected = Arrival.DUPLICATE
        else:
            expected = Arrival.FIRST
            firsts[record_id] = time_ms
        if expected is not Arrival.LATE:
            clock_ms = max(clock_ms, time_ms)
        assert seen.judge(record_id, time_ms) is expected


def test_only_ids_of_two_windows_are_kept():
    seen = SeenIds(WINDOW_MS)
    for time_ms in range(1000):
        seen.judge(str(time_ms), time_ms)
    assert len(SeenIds(WINDOW_MS, seen.packed())) == 2 * WINDOW_MS + 1
