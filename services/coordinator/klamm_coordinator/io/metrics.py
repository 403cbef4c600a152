"""The metrics of the coordinator."""

from __future__ import annotations

from collections.abc import Callable

from klamm_server.metrics.instruments import counter, counters, gauge, histogram, histograms

REQUESTS = counters("klamm_coordinator_requests", "Calls received.", ["rpc"])
REQUEST_SECONDS = histograms(
    "klamm_coordinator_request_seconds",
    "Time from a call to its answer. It includes the wait for the append and, for JoinGroup, for the other members.",
    ["rpc"],
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0),
)
APPENDS_FAILED = counter("klamm_coordinator_appends_failed", "Writes that failed because the brokers refused them.")
LOAD_SECONDS = histogram("klamm_coordinator_shard_load_seconds", "Time from a shard's claim to its first answer.")
GROUP_REFUSALS = counter(
    "klamm_coordinator_group_refusals", "Requests that were refused because of group.metadata.max.bytes."
)
TRANSACTION_REFUSALS = counter(
    "klamm_coordinator_transactional_id_refusals",
    "Requests that were refused because of transactional.id.metadata.max.bytes.",
)
_GAUGES = {
    "transactional_id_metadata_bytes": gauge(
        "klamm_coordinator_transactional_id_metadata_bytes",
        "Memory that transactional ids and their transactions take, which transactional.id.metadata.max.bytes bounds.",
    ),
    "group_metadata_bytes": gauge(
        "klamm_coordinator_group_metadata_bytes",
        "Memory that groups and their offsets take, which group.metadata.max.bytes bounds.",
    ),
    "shards": gauge("klamm_coordinator_shards", "Shards that this coordinator serves."),
    "transactional_ids": gauge(
        "klamm_coordinator_transactional_ids", "Transactional ids in the shards that this coordinator serves."
    ),
    "open_transactions": gauge("klamm_coordinator_open_transactions", "Transactions that are open."),
    "prepared_transactions": gauge(
        "klamm_coordinator_prepared_transactions",
        "Open transactions that are prepared and wait for the decision about their batch.",
    ),
    "untold_transactions": gauge(
        "klamm_coordinator_untold_transactions", "Ended transactions with partitions that lack the marker."
    ),
    "pending_writes_bytes": gauge(
        "klamm_coordinator_pending_writes_bytes",
        "Bytes of writes that wait for their append, which coordinator.pending.writes.max.bytes bounds.",
    ),
    "pending_writes": gauge("klamm_coordinator_pending_writes", "Writes that wait for their append."),
}


def watch_gauges(**gauges: Callable[[], int]) -> None:
    """Sets the functions that return the values of the gauges when the metrics are read.

    The functions run in the thread of the metrics endpoint, so they must not change anything."""
    assert gauges.keys() == _GAUGES.keys(), sorted(gauges)
    for name, read in gauges.items():
        _GAUGES[name].set_function(read)
