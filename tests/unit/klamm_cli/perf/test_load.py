"""Tests how many records a measurement sends, and when."""

from __future__ import annotations

import pytest

from klamm_cli.perf.load import CHUNK, Load


def sent_by(load, step_s=0.001):
    """Returns the number of records and the time at the end, if a look at the clock takes `step_s`."""
    sent, elapsed_s = 0, 0.0
    while (due := load.due(sent, elapsed_s)) is not None:
        assert 0 <= due <= CHUNK
        sent += due
        elapsed_s += step_s if due else max(step_s, load.wait_s(sent, elapsed_s))
    return sent, elapsed_s


def test_a_load_of_a_time_sends_full_chunks_until_then():
    assert sent_by(Load(seconds=1.0), step_s=0.25) == (4 * CHUNK, 1.0)


def test_a_count_is_sent_exactly_whatever_the_time():
    assert sent_by(Load(seconds=0.1, count=1_234), step_s=1.0)[0] == 1_234


@pytest.mark.parametrize("step_s", [0.0001, 0.01, 0.1])
def test_a_rate_is_kept_and_a_late_record_is_made_up_for(step_s):
    sent, elapsed_s = sent_by(Load(seconds=10.0, rate=500.0), step_s=step_s)
    assert sent == pytest.approx(5_000, abs=51)
    assert elapsed_s == pytest.approx(10.0, abs=0.11)


def test_at_a_rate_the_first_record_is_due_at_once_and_the_second_later():
    load = Load(seconds=10.0, rate=2.0)
    assert load.due(0, 0.0) == 1
    assert load.due(1, 0.1) == 0
    assert load.wait_s(1, 0.1) == pytest.approx(0.4)


def test_the_warm_up_is_short():
    assert Load(seconds=60.0).warm_up().seconds == 1.0
    assert Load(seconds=60.0, count=1_000_000).warm_up().count == 10_000
    assert Load(seconds=0.1, count=5).warm_up() == Load(seconds=0.1, count=5)
