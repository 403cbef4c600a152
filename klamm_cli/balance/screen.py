"""A plan as lines and tables for people, and as one document. Pure."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from klamm_cli.balance.load import Load, broker_loads
from klamm_cli.balance.measure import MeasuredCluster
from klamm_cli.balance.plan import BalancePlan, worst_deviation
from klamm_cli.text.amounts import counted, in_bytes

COLUMNS: Final = ("broker", "rack", "in_s", "in_s_after", "out_s", "out_s_after", "stored", "stored_after", "leaders")


def headline(cluster: MeasuredCluster, plan: BalancePlan) -> str:
    """Returns a sentence about the plan."""
    before, after = _worst(cluster, plan)
    if not plan.moves:
        return f"the cluster is balanced: no broker differs from the mean by more than {before:.0%}, or no move helps"
    copies = sum(set(new) != set(cluster.partitions[tp].replicas) for tp, new in plan.moves.items())
    return (
        f"move {counted(copies, 'partition')} and change {counted(len(plan.moves) - copies, 'preferred leader')}, which"
        f" copies {in_bytes(plan.copied_bytes)}; the largest difference from the mean falls from {before:.0%} to"
        f" {after:.0%}"
    )


def rows(cluster: MeasuredCluster, plan: BalancePlan) -> list[tuple[Any, ...]]:
    """Returns a row for each broker, with its load before and after the plan."""
    before, after = _loads(cluster, plan)
    leaders = Counter(
        partition.replicas[0] for partition in plan.after(cluster.partitions).values() if partition.replicas
    )
    return [
        (
            broker_id,
            cluster.racks[broker_id] or None,
            *(in_bytes(load[part]) for part in range(3) for load in (before[broker_id], after[broker_id])),
            leaders[broker_id],
        )
        for broker_id in sorted(before)
    ]


def moves(cluster: MeasuredCluster, plan: BalancePlan) -> list[str]:
    """Returns a line for each partition that changes."""
    return [
        f"{tp}: {_ids(cluster.partitions[tp].replicas)} -> {_ids(after)}" for tp, after in sorted(plan.moves.items())
    ]


def document(cluster: MeasuredCluster, plan: BalancePlan) -> dict[str, Any]:
    """Returns the document that `--json` prints."""
    before, after = _loads(cluster, plan)
    worst_before, worst_after = _worst(cluster, plan)
    return {
        "moves": [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "replicas": list(cluster.partitions[tp].replicas),
                "new_replicas": list(replicas),
                "size_bytes": cluster.partitions[tp].size_bytes,
            }
            for tp, replicas in sorted(plan.moves.items())
        ],
        "copied_bytes": plan.copied_bytes,
        "worst_deviation": {"before": round(worst_before, 4), "after": round(worst_after, 4)},
        "brokers": [
            {
                "broker": broker_id,
                "rack": cluster.racks[broker_id],
                "before": _rounded(before[broker_id]),
                "after": _rounded(after[broker_id]),
            }
            for broker_id in sorted(before)
        ],
    }


def _worst(cluster: MeasuredCluster, plan: BalancePlan) -> tuple[float, float]:
    partitions = cluster.partitions
    return worst_deviation(partitions, cluster.targets), worst_deviation(plan.after(partitions), cluster.targets)


def _loads(cluster: MeasuredCluster, plan: BalancePlan) -> tuple[dict[int, Load], dict[int, Load]]:
    partitions = cluster.partitions
    return broker_loads(partitions, cluster.racks), broker_loads(plan.after(partitions), cluster.racks)


def _rounded(load: Load) -> dict[str, int]:
    return {
        "in_bytes_per_second": round(load.in_bytes),
        "out_bytes_per_second": round(load.out_bytes),
        "size_bytes": round(load.size_bytes),
    }


def _ids(replicas: tuple[int, ...]) -> str:
    return ",".join(map(str, replicas))
