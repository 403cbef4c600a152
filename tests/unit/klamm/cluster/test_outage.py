from __future__ import annotations

import pytest

from klamm.cluster.outage import Outage


def test_an_outage_is_a_warning_at_its_beginning_and_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    times_ms = iter((100_000, 101_000, 159_000, 160_000, 161_000, 219_000, 220_000, 221_000, 222_000))
    outage = Outage("c", ["a:1", "b:2"], lambda: next(times_ms))
    for _ in range(7):
        outage.note("Connection refused")
    outage.end()
    outage.note("Connection refused")
    text = "no server answers at a:1,b:2 (Connection refused); trying again client.id=c for_s="
    assert [record.getMessage() for record in caplog.records] == [f"{text}{for_s}" for for_s in (0, 60, 120, 0)]
