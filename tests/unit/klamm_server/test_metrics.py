"""The metrics endpoint, over its real socket."""

from __future__ import annotations

import enum
import socket
import urllib.request

import pytest

from klamm.errors import KlammError
from klamm_server.instruments import counter, counters, histogram
from klamm_server.metrics import event_queue_observer, watch_event_queue_length
from klamm_server.prometheus import MetricsServer, registry


class Kind(enum.Enum):
    """A label."""

    LATE = enum.auto()


def _scrape(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://localhost:{port}/metrics", timeout=5) as response:
        lines = response.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def test_queue_metrics_are_served_in_seconds() -> None:
    observe = event_queue_observer("metrics-test")
    observe(250, 5)
    observe(0, 0)
    watch_event_queue_length("metrics-test", lambda: 7)
    server = MetricsServer(0)
    try:
        samples = _scrape(server.port)
    finally:
        server.close()
    assert samples['klamm_event_queue_length{queue="metrics-test"}'] == 7
    assert samples['klamm_event_queue_wait_seconds_sum{queue="metrics-test"}'] == 0.25
    assert samples['klamm_event_queue_wait_seconds_bucket{le="0.1",queue="metrics-test"}'] == 1
    assert samples['klamm_event_queue_handle_seconds_sum{queue="metrics-test"}'] == 0.005
    assert samples["process_resident_memory_bytes"] > 0


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


def test_an_observation_belongs_to_the_bucket_whose_bound_it_reaches() -> None:
    spread = histogram("klamm_metrics_test_seconds", "Of this test.")
    for observed in (0.001, 0.005, 0.006, 100):
        spread.observe(observed)
    found = registry().get_sample_value
    assert found("klamm_metrics_test_seconds_bucket", {"le": "0.005"}) == 2
    assert found("klamm_metrics_test_seconds_bucket", {"le": "0.01"}) == 3
    assert found("klamm_metrics_test_seconds_bucket", {"le": "10.0"}) == 3
    assert found("klamm_metrics_test_seconds_bucket", {"le": "+Inf"}) == 4
    assert found("klamm_metrics_test_seconds_count") == 4


def test_a_port_in_use_is_refused_by_name() -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(KlammError, match=rf"^metrics\.port={port}: cannot listen there"):
            MetricsServer(port)
