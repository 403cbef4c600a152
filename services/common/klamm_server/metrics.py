"""Metrics in Prometheus' format: the registry of this process and the endpoint that serves it.

Names start with `klamm_` and end with their unit, times in seconds, as Prometheus wants it. A module that measures
makes its metrics once, at import, in REGISTRY. The endpoint runs in a thread, so that a process whose event loop is
stuck can still be asked what it is doing.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from enum import Enum

from prometheus_client import CollectorRegistry, Gauge, Histogram, Metric, start_http_server
from prometheus_client.core import CounterMetricFamily
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from klamm.errors import KlammError

log = logging.getLogger(__name__)

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)

_QUEUE_BUCKETS_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0)
_QUEUE_LENGTH = Gauge("klamm_event_queue_length", "Events that wait to be handled.", ["queue"], registry=REGISTRY)
_QUEUE_WAIT = Histogram(
    "klamm_event_queue_wait_seconds",
    "From an event's arrival to its handling.",
    ["queue"],
    buckets=_QUEUE_BUCKETS_S,
    registry=REGISTRY,
)
_QUEUE_HANDLE = Histogram(
    "klamm_event_queue_handle_seconds",
    "How long the handling of an event took.",
    ["queue"],
    buckets=_QUEUE_BUCKETS_S,
    registry=REGISTRY,
)


class Tally:
    """A counter for what happens very often: `add` costs a fraction of a `Counter.inc`.

    Of one thread; the endpoint's only looks. A member of an enumeration is a label by its name."""

    def __init__(self, name: str, documentation: str, label_names: Sequence[str] = ()) -> None:
        self._counts: defaultdict[tuple[object, ...], int] = defaultdict(int)
        self._name, self._documentation, self._label_names = name, documentation, label_names
        if not label_names:
            self.add(0)
        REGISTRY.register(self)

    def add(self, count: int, *labels: object) -> None:
        self._counts[labels] += count

    def collect(self) -> Iterator[Metric]:
        """What a registry calls."""
        family = CounterMetricFamily(self._name, self._documentation, labels=self._label_names)
        for labels, count in list(self._counts.items()):
            family.add_metric([label.name if isinstance(label, Enum) else str(label) for label in labels], count)
        yield family


def event_queue_observer(queue: str) -> Callable[[int, int], None]:
    """The `on_handled` of the event queue of that name."""
    waited, handled = _QUEUE_WAIT.labels(queue), _QUEUE_HANDLE.labels(queue)

    def observe(waited_ms: int, took_ms: int) -> None:
        waited.observe(waited_ms / 1000)
        handled.observe(took_ms / 1000)

    return observe


def watch_event_queue_length(queue: str, length: Callable[[], int]) -> None:
    """Reports `length()` when the metrics are read; it runs in the endpoint's thread, so it may only look."""
    _QUEUE_LENGTH.labels(queue).set_function(length)


class MetricsServer:
    """Serves `/metrics` on every interface until closed; `port` 0 lets the system choose."""

    def __init__(self, port: int) -> None:
        """Raises KlammError when the port cannot be bound."""
        try:
            self._server, self._thread = start_http_server(port, registry=REGISTRY)
        except OSError as error:
            raise KlammError(f"metrics.port={port}: cannot listen there ({error.strerror})") from error
        self.port: int = self._server.server_port
        log.info("metrics on port=%d", self.port)

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
