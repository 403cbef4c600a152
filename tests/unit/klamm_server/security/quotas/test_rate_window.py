from __future__ import annotations

import heapq
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_server.security.quotas.rate_window import RateWindow, WindowSpan

SPANS = st.builds(WindowSpan, st.integers(2, 12), st.sampled_from([1, 100, 1_000, 3_000]))
STEPS = st.lists(st.tuples(st.integers(0, 15_000), st.integers(0, 10**9)), min_size=1, max_size=60)
"""The steps of a run. Each has the milliseconds since the step before, and the quantity that it records."""


class NaiveRate:
    """Kafka's algorithm, literally: samples in a ring that are reset instead of dropped, and restart at that time."""

    def __init__(self, span: WindowSpan) -> None:
        self.span = span
        self.samples: list[list[float]] = []
        """Start, last event, value."""
        self.current = 0

    def record(self, value: float, now_ms: int) -> None:
        if not self.samples:
            self.samples.append([now_ms, now_ms, 0.0])
        if now_ms - self.samples[self.current][0] >= self.span.window_ms:
            self.current = (self.current + 1) % (self.span.windows + 1)
            if self.current >= len(self.samples):
                self.samples.append([now_ms, now_ms, 0.0])
            else:
                self.samples[self.current] = [now_ms, now_ms, 0.0]
        self.samples[self.current][1] = now_ms
        self.samples[self.current][2] += value

    def throttle_ms(self, limit: float, now_ms: int) -> float:
        for sample in self.samples:
            if now_ms - sample[1] >= self.span.windows * self.span.window_ms:
                sample[:] = [now_ms, now_ms, 0.0]
        elapsed_ms = now_ms - min(sample[0] for sample in self.samples)
        full = int(elapsed_ms // self.span.window_ms)
        if full < self.span.windows - 1:
            elapsed_ms += (self.span.windows - 1 - full) * self.span.window_ms
        elapsed_ms = max(elapsed_ms, 1)
        rate = sum(sample[2] for sample in self.samples) / (elapsed_ms / 1000)
        return (rate - limit) / limit * elapsed_ms if rate > limit else 0


@given(span=SPANS, steps=STEPS, limit=st.floats(0.01, 1e9))
def test_throttle_times_equal_kafkas_or_are_longer_by_at_most_a_burst(
    span: WindowSpan, steps: list[tuple[int, int]], limit: float
) -> None:
    ours, naive, now_ms = RateWindow(span), NaiveRate(span), 1_000_000
    too_much = limit * span.window_ms / 1000
    most_bytes, burst_ms = 0, span.burst_s * 1000
    for later_ms, amount in steps:
        now_ms += later_ms
        ours.record(amount, limit, now_ms)
        naive.record(amount, now_ms)
        most_bytes = max(most_bytes, sum(int(sample[2]) for sample in naive.samples))
        told_ms, kafkas_ms = ours.throttle_ms(limit, now_ms), naive.throttle_ms(limit, now_ms)
        if most_bytes <= too_much or now_ms - 1_000_000 < span.windows * span.window_ms:
            assert told_ms == pytest.approx(kafkas_ms, rel=1e-9, abs=0.51)
        assert kafkas_ms * (1 - 1e-9) - 0.51 <= told_ms <= (kafkas_ms + burst_ms) * (1 + 1e-9) + 0.51


@given(span=SPANS, steps=STEPS)
def test_the_number_of_kept_windows_is_bounded(span: WindowSpan, steps: list[tuple[int, int]]) -> None:
    window, now_ms = RateWindow(span), 0
    for later_ms, amount in steps:
        now_ms += later_ms
        window.record(amount, 1e6, now_ms)
        assert len(window._windows) <= span.windows + 1


LIMIT = 2_000_000


def share_done(connections: int, request_bytes: int, seconds: int) -> float:
    """Simulates connections that send as fast as the throttle permits. Returns their share of the limit."""
    window, done, served_ms = RateWindow(WindowSpan()), 0, 5_000.0
    turns = [(served_ms, number) for number in range(connections)]
    end_ms = served_ms + seconds * 1000
    while turns[0][0] < end_ms:
        asked_ms, number = heapq.heappop(turns)
        served_ms = max(served_ms, asked_ms) + request_bytes / 300_000
        window.record(request_bytes, LIMIT, int(served_ms))
        done += request_bytes
        heapq.heappush(turns, (served_ms + 1 + window.throttle_ms(LIMIT, int(served_ms)), number))
    return done / (LIMIT * seconds)


@pytest.mark.parametrize("seconds", [15, 30, 60])
@pytest.mark.parametrize("connections", [1, 10, 100])
def test_connections_of_one_client_together_reach_the_limit(connections: int, seconds: int) -> None:
    """This holds from the first request, with a new client's burst included."""
    assert share_done(connections, 16_384, seconds) == pytest.approx(1, abs=0.1)


def test_connections_that_each_overshoot_the_limit_reach_it_on_average() -> None:
    """Ten connections that send half a second's worth each use five seconds' worth before all of them wait."""
    assert share_done(10, LIMIT // 2, 240) == pytest.approx(1, abs=0.1)


@given(limit=st.integers(100, 10**7), amounts=st.lists(st.floats(0.001, 2), min_size=1, max_size=5))
def test_a_client_that_waits_its_throttle_times_reaches_the_limit(limit: int, amounts: list[float]) -> None:
    """The amounts are in seconds of the limit."""
    window, began_ms, done, turn = RateWindow(WindowSpan()), 5_000, 0.0, 0
    now_ms = began_ms
    while now_ms < began_ms + 60_000:
        amount = limit * amounts[turn % len(amounts)]
        window.record(amount, limit, now_ms)
        done += amount
        turn += 1
        now_ms += max(1, window.throttle_ms(limit, now_ms))
    assert done <= 1.1 * limit * 60
    if sum(amounts) / len(amounts) > 0.01:
        assert done >= 0.9 * limit * 60, "the limit is used"


def test_an_idle_client_gets_its_burst_again() -> None:
    window = RateWindow(WindowSpan())
    for now_ms in (0, 11_000, 40_000):
        window.record(10_000, 1_000, now_ms)
        assert window.throttle_ms(1_000, now_ms) == 0
        window.record(1, 1_000, now_ms)
        assert window.throttle_ms(1_000, now_ms) == 1


def test_after_all_windows_have_passed_at_most_a_burst_is_owed() -> None:
    window = RateWindow(WindowSpan())
    window.record(1_000_000, 1_000, 0)
    assert window.throttle_ms(1_000, 0) == 990_000
    window.record(1, 1_000, 11_000)
    assert window.throttle_ms(1_000, 11_000) == 1
    assert window.throttle_ms(1_000, 22_000) == 0


def test_recorded_bytes_that_are_taken_back_do_not_count() -> None:
    window = RateWindow(WindowSpan())
    window.record(10_000, 1_000, 0)
    before = window.throttle_ms(1_000, 0)
    window.record(5_000, 1_000, 0)
    assert window.throttle_ms(1_000, 0) > before
    window.record(-5_000, 1_000, 0)
    assert window.throttle_ms(1_000, 0) == before


def test_a_burst_of_the_allowed_size_is_not_throttled() -> None:
    span = WindowSpan()
    window = RateWindow(span)
    window.record(span.burst_s * 500, 500, 0)
    assert window.throttle_ms(500, 0) == 0
    window.record(1, 500, 0)
    assert window.throttle_ms(500, 0) == math.floor(1 / 500 * 1000 + 0.5)


def test_the_time_of_the_last_record_is_known() -> None:
    window = RateWindow(WindowSpan())
    assert window.last_ms == -1
    window.record(1, 1_000, 7)
    window.record(1, 1_000, 1_900)
    assert window.last_ms == 1_900
