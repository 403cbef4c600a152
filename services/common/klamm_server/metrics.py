"""Metrics that every service has: of its event queues.

Names start with `klamm_` and end with their unit, times in seconds, as Prometheus wants it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from klamm_server.instruments import gauges, histograms

_QUEUE_BUCKETS_S: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0)
_QUEUE_LENGTH = gauges("klamm_event_queue_length", "Events that wait to be handled.", ["queue"])
_QUEUE_WAIT = histograms(
    "klamm_event_queue_wait_seconds", "From an event's arrival to its handling.", ["queue"], _QUEUE_BUCKETS_S
)
_QUEUE_HANDLE = histograms(
    "klamm_event_queue_handle_seconds", "How long the handling of an event took.", ["queue"], _QUEUE_BUCKETS_S
)


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
