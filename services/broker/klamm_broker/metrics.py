"""What the broker counts."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import Counter, Gauge

from klamm.errors import ErrorCode
from klamm_server.metrics import REGISTRY

BYTES_IN = Counter("klamm_broker_in_bytes", "Record batches appended for producers.", registry=REGISTRY)
BYTES_OUT = Counter("klamm_broker_out_bytes", "Record batches sent to consumers.", registry=REGISTRY)
REQUESTS = Counter("klamm_broker_requests", "Calls received.", ["rpc"], registry=REGISTRY)
_ERRORS = Counter(
    "klamm_broker_errors", "Outcomes other than success, per partition.", ["rpc", "error"], registry=REGISTRY
)
_PARKED = Gauge("klamm_broker_parked_requests", "Calls that wait in a purgatory.", ["purgatory"], registry=REGISTRY)
_REQUEST_MEMORY = Gauge("klamm_broker_request_memory_bytes", "Requests and answers under way.", registry=REGISTRY)
_OFFLINE_LOG_DIRS = Gauge("klamm_broker_offline_log_dirs", "Log directories that failed.", registry=REGISTRY)
_PARTITIONS = Gauge("klamm_broker_partitions", "Partition replicas that are online.", registry=REGISTRY)


def on_error(rpc: str, code: ErrorCode) -> None:
    """A partition's outcome was not success."""
    _ERRORS.labels(rpc, code.name).inc()


def watch_gauges(
    *,
    parked_fetches: Callable[[], int],
    parked_produces: Callable[[], int],
    request_memory_bytes: Callable[[], int],
    offline_log_dirs: Callable[[], int],
    partitions: Callable[[], int],
) -> None:
    """Reports these when the metrics are read; they run in the endpoint's thread, so they may only look."""
    _PARKED.labels("fetch").set_function(parked_fetches)
    _PARKED.labels("produce").set_function(parked_produces)
    _REQUEST_MEMORY.set_function(request_memory_bytes)
    _OFFLINE_LOG_DIRS.set_function(offline_log_dirs)
    _PARTITIONS.set_function(partitions)
