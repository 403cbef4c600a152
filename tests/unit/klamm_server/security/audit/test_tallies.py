"""Tests that the first of equal events is reported at once, and the count of the others once a minute.

The counts add up.
"""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from klamm_server.security.audit.events import AuditEvent
from klamm_server.security.audit.tallies import MINUTE_MS, OPEN_MAX_BYTES, TalliedEvent, Tallies
from tests.support.audit_events import denied

A, B = denied("a"), denied("b")


def test_the_first_event_is_reported_at_once_and_equal_ones_when_the_minute_ends() -> None:
    tallies = Tallies()
    assert tallies.count(A, 1_000)[1] == [TalliedEvent(A, 1, 1_000, 1_000)]
    assert tallies.count(A, 2_000)[1] == []
    assert tallies.count(A, 3_000)[1] == []
    assert tallies.end_minutes(1_000 + MINUTE_MS - 1) == []
    assert tallies.end_minutes(1_000 + MINUTE_MS) == [TalliedEvent(A, 2, 1_000, 1_000 + MINUTE_MS)]


def test_repeated_events_are_reported_once_a_minute() -> None:
    tallies = Tallies()
    told = [one for now_ms in range(0, 10 * MINUTE_MS, 1_000) for one in tallies.count(A, now_ms)[1]]
    assert [one.times for one in told] == [1, 59, 60, 60, 60, 60, 60, 60, 60, 60]


def test_a_tally_is_closed_after_a_minute_without_events() -> None:
    tallies = Tallies()
    tally, _ = tallies.count(A, 0)
    assert tallies.end_minutes(MINUTE_MS) == []
    assert not tally.is_open
    assert len(tallies) == tallies.held_bytes == 0
    assert tallies.count(A, MINUTE_MS + 1)[1] == [TalliedEvent(A, 1, MINUTE_MS + 1, MINUTE_MS + 1)]


def test_events_that_the_holder_of_a_tally_counts_are_reported() -> None:
    tallies = Tallies()
    tally, _ = tallies.count(A, 0)
    tally.count += 5
    assert tallies.close(10) == [TalliedEvent(A, 5, 0, 10)]
    assert not tally.is_open


def test_the_memory_of_open_tallies_is_bounded() -> None:
    tallies = Tallies()
    oldest, _ = tallies.count(A, 0)
    oldest.count += 3
    told: list[TalliedEvent] = []
    number = 0
    while oldest.is_open:
        told += tallies.count(denied(f"{number}-" + "é" * 200), 0)[1]
        assert tallies.held_bytes <= OPEN_MAX_BYTES
        number += 1
    assert TalliedEvent(A, 3, 0, 0) in told
    assert sum(one.times for one in told) == 3 + number


@given(st.lists(st.tuples(st.sampled_from((A, B, denied("c"))), st.integers(0, 2 * MINUTE_MS), st.integers(0, 3))))
def test_the_reported_counts_add_up_and_no_event_is_reported_twice_a_minute(
    steps: list[tuple[AuditEvent, int, int]],
) -> None:
    tallies, now_ms = Tallies(), 0
    happened: Counter[AuditEvent] = Counter()
    told: list[TalliedEvent] = []
    for event, later_ms, by_holder in steps:
        now_ms += later_ms
        tally, some = tallies.count(event, now_ms)
        assert tally.is_open
        tally.count += by_holder
        happened[event] += 1 + by_holder
        told += some
    told += tallies.close(now_ms)
    assert len(tallies) == tallies.held_bytes == 0
    counted: Counter[AuditEvent] = Counter()
    for one in told:
        assert one.begin_ms <= one.end_ms
        counted[one.event] += one.times
    assert counted == happened
    for event in happened:
        ends = [one.end_ms for one in told if one.event == event and one.end_ms > one.begin_ms]
        assert all(later - before >= MINUTE_MS for before, later in itertools.pairwise(ends[:-1]))
