"""Tests the rates that follow from samples, and that few samples are kept."""

from __future__ import annotations

import pytest

from klamm_coordinator.lag.histories import Histories
from klamm_coordinator.lag.samples import KEPT_MS, NEWEST_KEPT, RECENT_MS, STANDS_MS, Samples

S, MINUTE = 1_000, 60_000


def sampled(*rows: tuple[int, int]) -> Samples:
    samples = Samples()
    for time_ms, value in rows:
        samples.note(time_ms, value)
    return samples


def steady(per_s: int, *, until_ms: int, every_ms: int = 15 * S, start_ms: int = 0) -> Samples:
    return sampled(*((at, at * per_s // S) for at in range(start_ms, until_ms + 1, every_ms)))


def test_a_rate_needs_three_intervals() -> None:
    rows = [(0, 0), (5 * S, 500), (10 * S, 1_500)]
    assert sampled().rate(0) is None
    assert sampled(*rows).rate(10 * S) is None
    assert sampled(*rows, (20 * S, 2_000)).rate(20 * S) == 100.0


def test_the_time_between_changes_is_known_from_three_values_on() -> None:
    rows = [(0, 0), (MINUTE, 0), (2 * MINUTE, 50)]
    assert sampled().change_interval_ms() is None
    assert sampled(*rows).change_interval_ms() is None
    assert sampled(*rows, (6 * MINUTE, 70)).change_interval_ms() == 3 * MINUTE


def test_the_time_between_changes_is_that_of_now() -> None:
    samples = steady(1, until_ms=60 * MINUTE)
    assert samples.change_interval_ms() == 15 * S
    for number in range(1, NEWEST_KEPT + 1):
        samples.note((60 + 4 * number) * MINUTE, 3_600 + number)
    assert samples.change_interval_ms() == 4 * MINUTE


def test_the_rate_of_now_ignores_what_was_long_ago() -> None:
    samples = steady(100, until_ms=70 * MINUTE)
    for number in range(1, NEWEST_KEPT + 1):
        samples.note(70 * MINUTE + number * 15 * S, 420_000 + 15 * number)
    now_ms = 70 * MINUTE + NEWEST_KEPT * 15 * S
    assert samples.rate(now_ms) == 1.0
    before = samples.rate_before(now_ms)
    assert before is not None
    assert before == pytest.approx(100, rel=0.01)


def test_a_number_without_new_samples_stands() -> None:
    samples = steady(100, until_ms=5 * MINUTE)
    assert samples.rate(5 * MINUTE + STANDS_MS) == 100.0
    assert samples.rate(5 * MINUTE + STANDS_MS + 1) == 0.0


def test_a_number_with_rare_samples_stands_later() -> None:
    samples = steady(100, until_ms=60 * MINUTE, every_ms=10 * MINUTE)
    assert samples.rate(90 * MINUTE) == 100.0
    assert samples.rate(90 * MINUTE + 1) == 0.0


def test_the_rate_of_before_is_known_after_some_minutes() -> None:
    samples = steady(100, until_ms=15 * MINUTE)
    assert samples.rate_before(15 * MINUTE) is None
    longer = steady(100, until_ms=25 * MINUTE)
    assert longer.rate_before(25 * MINUTE) == pytest.approx(100, rel=0.01)
    assert longer.rate_before(25 * MINUTE + KEPT_MS) is None, "the samples are too old"


def test_a_sample_that_is_not_newer_changes_nothing() -> None:
    samples = sampled((1 * S, 7), (1 * S, 8), (0, 9))
    assert len(samples) == 1
    assert samples.since_ms(7) == 1 * S


def test_a_smaller_number_begins_the_history_again() -> None:
    samples = steady(100, until_ms=5 * MINUTE)
    samples.note(6 * MINUTE, 5)
    assert len(samples) == 1
    assert samples.rate(6 * MINUTE) is None


def test_the_time_since_when_a_number_is_the_same_survives_thinning() -> None:
    samples = sampled((0, 6), *((at, 7) for at in range(15 * S, 30 * MINUTE, 15 * S)))
    assert samples.since_ms(7) == pytest.approx(15 * S, abs=RECENT_MS)
    assert samples.since_ms(6) is None
    assert samples.since_ms(8) is None


def test_few_samples_are_kept() -> None:
    samples = steady(100, until_ms=10 * 60 * MINUTE)
    assert len(samples) <= NEWEST_KEPT + KEPT_MS // RECENT_MS + 1


def test_the_history_without_a_sample_for_the_longest_time_goes_first() -> None:
    histories: Histories[str] = Histories(2)
    for time_ms, key in enumerate("abac"):
        histories.note(key, time_ms, 1)
    assert len(histories) == 2
    assert histories.get("b") is None
    assert histories.get("a") is not None
