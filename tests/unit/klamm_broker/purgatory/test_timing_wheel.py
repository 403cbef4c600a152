"""Tests the timing wheel against a naive heap."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_broker.purgatory.timing_wheel import TimingWheel


class NaiveTimers:
    """A sorted list of (deadline rounded up to a tick, item)."""

    def __init__(self, start_ms: int, tick_ms: int) -> None:
        self.tick_ms = tick_ms
        self.heap: list[tuple[int, int]] = []

    def schedule(self, deadline_ms: int, item: int) -> None:
        heapq.heappush(self.heap, (-(-deadline_ms // self.tick_ms) * self.tick_ms, item))

    def cancel(self, item: int) -> bool:
        kept = [entry for entry in self.heap if entry[1] != item]
        found = len(kept) < len(self.heap)
        self.heap = kept
        heapq.heapify(self.heap)
        return found

    def advance(self, now_ms: int) -> set[int]:
        expired = set()
        while self.heap and self.heap[0][0] <= now_ms:
            expired.add(heapq.heappop(self.heap)[1])
        return expired


delays = st.one_of(st.integers(-5, 60), st.integers(0, 100_000), st.sampled_from([20, 399, 400, 401, 7_999, 8_000]))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("schedule"), delays),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("advance"), delays.filter(lambda delay: delay >= 0)),
        st.tuples(st.just("advance to deadline"), st.just(0)),
    ),
    max_size=80,
)


@given(
    steps=steps,
    start_ms=st.integers(0, 10_000),
    tick_ms=st.sampled_from([1, 3, 10]),
    buckets=st.integers(2, 25),
)
def test_the_timing_wheel_fires_the_same_timers_as_a_heap(
    steps: list[tuple[str, int]], start_ms: int, tick_ms: int, buckets: int
) -> None:
    wheel: TimingWheel[int] = TimingWheel(start_ms=start_ms, tick_ms=tick_ms, bucket_count=buckets)
    naive = NaiveTimers(start_ms, tick_ms)
    timers = []
    now_ms = start_ms
    for step, argument in steps:
        if step == "schedule":
            timers.append(wheel.schedule(now_ms + argument, len(timers)))
            naive.schedule(now_ms + argument, len(timers) - 1)
        elif step == "cancel" and argument < len(timers):
            assert wheel.cancel(timers[argument]) == naive.cancel(argument)
        elif step.startswith("advance"):
            deadline_ms = wheel.next_deadline_ms()
            now_ms = now_ms + argument if step == "advance" else max(now_ms, deadline_ms or 0)
            fired = wheel.advance(now_ms)
            assert len(fired) == len(set(fired))
            assert set(fired) == naive.advance(now_ms)
        assert len(wheel) == len(naive.heap)
        deadline_ms = wheel.next_deadline_ms()
        assert (deadline_ms is None) == (not naive.heap)
        assert deadline_ms is None or deadline_ms <= max(now_ms, naive.heap[0][0])
        wheel.check_invariants()


def test_items_fire_in_order_of_deadline() -> None:
    wheel: TimingWheel[int] = TimingWheel(start_ms=7, bucket_count=4)
    for delay_ms in (900, 3, 50, 4, 61, 17, 16, 1):
        wheel.schedule(7 + delay_ms, delay_ms)
    assert wheel.advance(10_000) == [1, 3, 4, 16, 17, 50, 61, 900]


def test_advancing_to_each_next_deadline_fires_every_timer_on_time() -> None:
    """A driver that sleeps until next_deadline_ms wakes up only once for each level that a timer moves down."""
    wheel: TimingWheel[str] = TimingWheel(start_ms=0)
    wheel.schedule(123_456, "far")
    wakeups = 0
    while (deadline_ms := wheel.next_deadline_ms()) is not None:
        wakeups += 1
        if fired := wheel.advance(deadline_ms):
            assert fired == ["far"]
            assert deadline_ms == 123_456
    assert wakeups <= 5


def test_the_timing_wheel_ignores_a_time_that_goes_back() -> None:
    wheel: TimingWheel[str] = TimingWheel(start_ms=1_000)
    wheel.advance(2_000)
    assert wheel.advance(500) == []
    wheel.schedule(1_500, "late")
    assert wheel.next_deadline_ms() == 2_000
    assert wheel.advance(500) == ["late"]


@pytest.mark.parametrize("delay_ms", [0, 5, 5_000])
def test_a_cancelled_timer_stays_silent_and_cancels_once(delay_ms: int) -> None:
    wheel: TimingWheel[str] = TimingWheel(start_ms=0)
    timer = wheel.schedule(delay_ms, "never")
    assert wheel.cancel(timer)
    assert not wheel.cancel(timer)
    assert wheel.next_deadline_ms() is None
    assert wheel.advance(10_000) == []
