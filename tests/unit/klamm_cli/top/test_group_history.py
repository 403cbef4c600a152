from __future__ import annotations

import pytest

from klamm.model import TopicPartition
from klamm_cli.top.group_history import GroupHistory
from klamm_cli.top.sample import GroupPositions, Sample

TP = TopicPartition("t", 0)


def history(position, *, until_s, written_s=1_000, every_s=2.0):
    """Returns the history of a group, sampled every `every_s` seconds. `position` returns the committed offset at a
    time in seconds."""
    found = GroupHistory()
    for number in range(int(until_s / every_s) + 1):
        at_s = number * every_s
        end, committed = round(written_s * at_s), round(position(at_s))
        group = GroupPositions(state="Stable", committed={TP: committed}, lag=end - committed)
        sample = Sample(at_s=at_s, ends={TP: end}, leaders={TP: 1}, log_bytes={}, groups={"g": group})
        found.add(sample, {"g": end - committed})
    return found


def committing(interval_s, records_s):
    """Returns the position of a group that commits at intervals, and reads that many records per second."""
    return lambda at_s: records_s * interval_s * (at_s // interval_s)


@pytest.mark.parametrize("interval_s", [0.5, 3.0, 5.0, 7.0, 20.0])
def test_a_group_that_keeps_up_has_no_growing_lag_at_any_moment(interval_s):
    for until_s in range(20, 200, 2):
        rates = history(committing(interval_s, 1_000), until_s=until_s).rates("g")
        if rates is not None and until_s > 4 * interval_s:
            assert rates.lag_s == 0
            assert rates.committed_s == pytest.approx(1_000, rel=0.2)


def test_a_group_that_falls_behind_has_the_rate_of_its_lag():
    rates = history(committing(5.0, 600), until_s=60).rates("g")
    assert rates.committed_s == pytest.approx(600, rel=0.05)
    assert rates.lag_s == pytest.approx(400, rel=0.1)


def test_a_group_that_catches_up_has_a_negative_rate():
    rates = history(lambda at_s: committing(5.0, 1_500)(at_s) - 100_000, until_s=60).rates("g")
    assert rates.lag_s == pytest.approx(-500, rel=0.1)


def test_there_are_no_rates_before_three_commits():
    assert history(committing(5.0, 1_000), until_s=14).rates("g") is None
    assert history(committing(5.0, 1_000), until_s=22).rates("g") is not None


def test_a_group_that_stops_has_the_rate_of_what_is_written():
    rates = history(lambda at_s: committing(5.0, 1_000)(min(at_s, 60)), until_s=90).rates("g")
    assert rates.committed_s == 0
    assert rates.lag_s == pytest.approx(1_000, rel=0.01)


def test_a_group_that_never_commits_has_rates_after_fifteen_seconds():
    assert history(lambda _: 0, until_s=14).rates("g") is None
    assert history(lambda _: 0, until_s=16).rates("g").lag_s == pytest.approx(1_000)


def test_a_group_that_is_gone_is_forgotten():
    found = history(committing(5.0, 1_000), until_s=60)
    found.add(Sample(at_s=62, ends={}, leaders={}, log_bytes={}, groups={}), {})
    assert found.rates("g") is None
