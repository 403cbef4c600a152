"""Tests the metrics endpoint over its real socket."""

from __future__ import annotations

import asyncio
import enum
import math
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

from klamm.version import __version__
from klamm_server.metrics import instruments, process_metrics
from klamm_server.metrics.instruments import Readings, counter, counters, histogram
from klamm_server.metrics.metrics_server import MetricsServer
from klamm_server.metrics.process_metrics import (
    LOOP_CHECK_S,
    event_queue_observer,
    measure_event_loop,
    name_server,
    watch_disk,
    watch_event_queue_length,
)
from klamm_server.metrics.prometheus import registry
from tests.support.loop_time import LoopWithOwnTime


class Kind(enum.Enum):
    """Values of a label."""

    LATE = enum.auto()


def _scrape(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        lines = response.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def test_queue_metrics_are_served_in_seconds() -> None:
    observe = event_queue_observer("metrics-test")
    observe(250, 5)
    observe(0, 0)
    watch_event_queue_length("metrics-test", lambda: 7)
    server = MetricsServer("127.0.0.1", 0)
    try:
        samples = _scrape(server.port)
    finally:
        server.close()
    assert samples['klamm_event_queue_length{queue="metrics-test"}'] == 7
    assert samples['klamm_event_queue_wait_seconds_sum{queue="metrics-test"}'] == 0.25
    assert samples['klamm_event_queue_wait_seconds_bucket{le="0.1",queue="metrics-test"}'] == 1
    assert samples['klamm_event_queue_handle_seconds_sum{queue="metrics-test"}'] == 0.005
    assert samples["process_resident_memory_bytes"] > 0


def test_the_server_of_the_process_has_a_name() -> None:
    name_server("controller", 7)
    server = MetricsServer("127.0.0.1", 0)
    try:
        samples = _scrape(server.port)
    finally:
        server.close()
    assert samples[f'klamm_server_info{{node_id="7",role="controller",version="{__version__}"}}'] == 1
    assert samples["process_start_time_seconds"] > 0


def test_a_counter_counts_each_combination_of_labels_by_itself() -> None:
    plain, labelled = counter("test_plain", "Plain."), counters("test_labelled", "Labelled.", ["kind", "number"])
    plain.inc(5)
    plain.inc()
    for kind, number in ((Kind.LATE, 1), (Kind.LATE, 2), (Kind.LATE, 1)):
        labelled.labels(kind, number).inc()
    found = registry().get_sample_value
    assert found("test_plain_total") == 6
    assert found("test_labelled_total", {"kind": "LATE", "number": "1"}) == 2
    assert found("test_labelled_total", {"kind": "LATE", "number": "2"}) == 1


def test_an_observation_equal_to_a_buckets_bound_belongs_to_that_bucket() -> None:
    spread = histogram("klamm_metrics_test_seconds", "Of this test.")
    for observed in (0.001, 0.005, 0.006, 100):
        spread.observe(observed)
    found = registry().get_sample_value
    assert found("klamm_metrics_test_seconds_bucket", {"le": "0.005"}) == 2
    assert found("klamm_metrics_test_seconds_bucket", {"le": "0.01"}) == 3
    assert found("klamm_metrics_test_seconds_bucket", {"le": "10.0"}) == 3
    assert found("klamm_metrics_test_seconds_bucket", {"le": "+Inf"}) == 4
    assert found("klamm_metrics_test_seconds_count") == 4


def test_readings_are_computed_at_each_scrape_and_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instruments, "SERIES_MAX", 2)
    offsets = {"a": 1.0}
    readings = Readings("test_readings", "Of this test.", ("topic",))
    readings.set_function(lambda: [((name,), value) for name, value in offsets.items()])
    found = registry().get_sample_value
    assert found("test_readings", {"topic": "a"}) == 1
    assert found("klamm_metrics_truncated", {"metric": "test_readings"}) == 0
    offsets |= {"b": 2, "c": 3}
    assert [found("test_readings", {"topic": name}) for name in "abc"] == [1, 2, None]
    assert found("klamm_metrics_truncated", {"metric": "test_readings"}) == 1


def test_a_forgotten_label_is_no_longer_shown() -> None:
    family = counters("test_forgotten", "Of this test.", ["topic"])
    family.labels("a").inc()
    family.labels("b").inc()
    family.forget("a")
    family.forget("never seen")
    assert registry().get_sample_value("test_forgotten_total", {"topic": "a"}) is None
    assert registry().get_sample_value("test_forgotten_total", {"topic": "b"}) == 1


def test_a_blocked_event_loop_shows_its_delay_while_it_is_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller in another thread sees the delay while the loop is still blocked."""
    loop = LoopWithOwnTime()
    monkeypatch.setattr(process_metrics, "time", SimpleNamespace(monotonic=loop.time))

    async def scenario() -> tuple[float | None, float]:
        measuring = asyncio.create_task(measure_event_loop())
        await asyncio.sleep(0)
        loop.advance(LOOP_CHECK_S + 6)
        stalled = registry().get_sample_value("klamm_event_loop_stalled_seconds")
        late = registry().get_sample_value("klamm_event_loop_lag_seconds_sum")
        assert late is not None
        while registry().get_sample_value("klamm_event_loop_lag_seconds_sum") == late:  # noqa: ASYNC110
            await asyncio.sleep(0)
        measuring.cancel()
        after = registry().get_sample_value("klamm_event_loop_lag_seconds_sum")
        assert after is not None
        return stalled, after - late

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert runner.run(scenario()) == (pytest.approx(6), pytest.approx(6))


def test_the_free_space_of_a_missing_disk_is_nan(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "gone"):
        watch_disk(str(directory))
    found = registry().get_sample_value
    free, size = (found(f"klamm_disk_{one}_bytes", {"directory": str(tmp_path)}) for one in ("free", "size"))
    assert free is not None
    assert size is not None
    assert 0 < free <= size
    gone = found("klamm_disk_free_bytes", {"directory": str(tmp_path / "gone")})
    assert gone is not None
    assert math.isnan(gone)
