"""The page of all metrics, read from the instruments that the servers make at import."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any, Final

from klamm_server.metrics.instruments import FAMILIES, SERIES_MAX, Counter, Family, Gauge, Readings
from tools.reference.markdown import prose, table

MEASURING: Final = (
    "klamm_server.metrics.process_metrics",
    "klamm_server.metrics.throttles",
    "klamm_server.rpc.retries",
    "klamm_server.security.auditor",
    "klamm_server.security.logins.login",
    "klamm_server.security.server_tls",
    "klamm_broker.io.metrics",
    "klamm_broker.io.request_times",
    "klamm_broker.maintenance.held_partitions",
    "klamm_broker.replication.partition_metrics",
    "klamm_controller.active.metrics",
    "klamm_controller.active.unclean",
    "klamm_controller.log.raft_metrics",
    "klamm_coordinator.io.metrics",
    "klamm_coordinator.io.shard_metrics",
)
"""All modules that make instruments: first what every server measures, which the others import."""
_TITLES: Final = {
    "klamm_server": "Every server",
    "klamm_broker": "Brokers",
    "klamm_controller": "Controllers",
    "klamm_coordinator": "Coordinators",
}
"""The sections by the packages of the modules."""

HEAD: Final = f"""# Metrics

A server with `metrics.port` shows these at `/metrics`, for Prometheus. The page is made from the instruments themselves
(`python -m tools.reference`). `klamm up` gives each of its processes a port of its own, from `metrics.port` on.

A counter only grows, so use its `rate`. A gauge is a current value. A histogram has `_bucket`, `_count` and `_sum`, and
`histogram_quantile` computes percentiles. A metric may have a series for each partition, group or ledger. A server
shows the first {SERIES_MAX:,} series, and sets `klamm_metrics_truncated` to 1 for a metric that has more. The
`process_*` and `python_gc_*` metrics are those of Prometheus' own client for Python.

[Alerts](alerts.md) lists the rules for alerts. The lag of a group is `klamm:group_lag:records`, a rule of Prometheus.
Coordinators ask the brokers for it (`klamm_coordinator_group_unread_records`), and for its age
(`klamm_coordinator_group_behind_seconds`). Records that were deleted before a group read them count in
`klamm_coordinator_group_lost_records` instead.
"""


def page() -> str:
    """The whole text. It is right only in a process that has not imported the modules before."""
    lines = [HEAD]
    for package, title in _TITLES.items():
        lines += [f"## {title}", ""]
        lines += table(("Metric", "What it tells", "Kind", "Labels"), map(_row, _families(package)))
    return "\n".join(lines).rstrip("\n") + "\n"


def _families(package: str) -> Iterator[Family[Any] | Readings]:
    """What the modules of a package add, in their order."""
    for module in MEASURING:
        if module.startswith(f"{package}."):
            before = len(FAMILIES)
            importlib.import_module(module)
            yield from FAMILIES[before:]


def _row(family: Family[Any] | Readings) -> tuple[str, str, str, str]:
    kind = _kind(family)
    name = f"{family.name}_total" if kind == "counter" else family.name
    return f"`{name}`", prose(family.text), kind, ", ".join(f"`{label_name}`" for label_name in family.label_names)


def _kind(family: Family[Any] | Readings) -> str:
    kind = Gauge if isinstance(family, Readings) else family.kind
    return "counter" if kind is Counter else "gauge" if kind is Gauge else "histogram"
