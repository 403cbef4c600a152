"""What the coordinator measures."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import Counter, Gauge, Histogram

from klamm_server.metrics import REGISTRY

REQUESTS = Counter("klamm_coordinator_requests", "Calls received.", ["rpc"], registry=REGISTRY)
APPENDS_FAILED = Counter(
    "klamm_coordinator_appends_failed", "Writes that the brokers refused for good.", registry=REGISTRY
)
LOAD_SECONDS = Histogram(
    "klamm_coordinator_shard_load_seconds", "From a shard's claim to its first answer.", registry=REGISTRY
)
_GAUGES = {
    "shards": Gauge("klamm_coordinator_shards", "Shards that are served.", registry=REGISTRY),
    "groups": Gauge("klamm_coordinator_groups", "Groups of the shards that are served.", registry=REGISTRY),
    "transactional_ids": Gauge(
        "klamm_coordinator_transactional_ids", "Transactional ids of the shards that are served.", registry=REGISTRY
    ),
    "open_transactions": Gauge("klamm_coordinator_open_transactions", "Transactions that are open.", registry=REGISTRY),
    "prepared_transactions": Gauge(
        "klamm_coordinator_prepared_transactions",
        "Open transactions that are prepared and wait for the decision about their batch.",
        registry=REGISTRY,
    ),
    "untold_transactions": Gauge(
        "klamm_coordinator_untold_transactions",
        "Ended transactions whose partitions have not all been told.",
        registry=REGISTRY,
    ),
    "pending_writes": Gauge(
        "klamm_coordinator_pending_writes", "Writes that wait for their append.", registry=REGISTRY
    ),
}


def watch_gauges(**gauges: Callable[[], int]) -> None:
    """Reports each of them when the metrics are read.

    They run in the endpoint's thread, so they may only look."""
    assert gauges.keys() == _GAUGES.keys(), sorted(gauges)
    for name, read in gauges.items():
        _GAUGES[name].set_function(read)
