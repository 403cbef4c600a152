"""The metrics of clients' quotas."""

from __future__ import annotations

from klamm_server.metrics.instruments import counters

_REQUESTS = counters("klamm_throttled_requests", "Requests that were throttled by a quota.", ["quota"])
_SECONDS = counters("klamm_throttle_seconds", "Sum of the throttle times of these requests.", ["quota"])


def on_throttled(quota: str, throttle_ms: int) -> None:
    """Counts a request that a quota throttled."""
    _REQUESTS.labels(quota).inc()
    _SECONDS.labels(quota).inc(throttle_ms / 1000)
