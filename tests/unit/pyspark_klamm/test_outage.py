"""Tests when a query warns that no server answers."""

from __future__ import annotations

from pyspark_klamm.outage import Outage


def test_the_first_failure_of_an_outage_is_logged_and_then_one_a_minute():
    outage = Outage()
    assert [now_s for now_s in range(0, 200, 10) if outage.is_worth_a_warning(now_s)] == [0, 60, 120, 180]
    outage.end()
    assert outage.is_worth_a_warning(201)
