"""What the coordinator measures."""

from __future__ import annotations

from collections.abc import Callable

from klamm_server.instruments import counter, counters, gauge, histogram

REQUESTS = counters("klamm_coordinator_requests", "Calls received.", ["rpc"])
APPENDS_FAILED = counter("klamm_coordinator_appends_failed", "Writes that the brokers refused for good.")
LOAD_SECONDS = histogram("klamm_coordinator_shard_load_seconds", "From a shard's claim to its first answer.")
_GAUGES = {
    "shards": gauge("klamm_coordinator_shards", "Shards that are served."),
    "groups": gauge("klamm_coordinator_groups", "Groups of the shards that are served."),
    "transactional_ids": gauge(
        "klamm_coordinator_transactional_ids", "Transactional ids of the shards that are served."
    ),
    "open_transactions": gauge("klamm_coordinator_open_transactions", "Transactions that are open."),
    "prepared_transactions": gauge(
        "klamm_coordinator_prepared_transactions",
        "Open transactions that are prepared and wait for the decision about their batch.",
    ),
    "untold_transactions": gauge(
        "klamm_coordinator_untold_transactions", "Ended transactions whose partitions have not all been told."
    ),
    "pending_writes": gauge("klamm_coordinator_pending_writes", "Writes that wait for their append."),
}


def watch_gauges(**gauges: Callable[[], int]) -> None:
    """Reports each of them when the metrics are read.

    They run in the endpoint's thread, so they may only look."""
    assert gauges.keys() == _GAUGES.keys(), sorted(gauges)
    for name, read in gauges.items():
        _GAUGES[name].set_function(read)
