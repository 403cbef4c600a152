"""The metrics endpoint, over its real socket."""

from __future__ import annotations

import enum
import socket
import urllib.request

import pytest

from klamm.errors import KlammError
from klamm_server.metrics import REGISTRY, MetricsServer, Tally, event_queue_observer, watch_event_queue_length


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


def test_a_port_in_use_is_refused_by_name() -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(KlammError, match=rf"^metrics\.port={port}: cannot listen there"):
            MetricsServer(port)


def test_a_tally_is_a_counter_of_the_registry() -> None:
    plain, labelled = Tally("test_tally", "Plain."), Tally("test_tally_of", "Labelled.", ["kind", "number"])
    plain.add(5)
    plain.add(2)
    for kind, number in ((Kind.LATE, 1), (Kind.LATE, 2), (Kind.LATE, 1)):
        labelled.add(1, kind, number)
    assert REGISTRY.get_sample_value("test_tally_total") == 7
    assert REGISTRY.get_sample_value("test_tally_of_total", {"kind": "LATE", "number": "1"}) == 2
    assert REGISTRY.get_sample_value("test_tally_of_total", {"kind": "LATE", "number": "2"}) == 1
