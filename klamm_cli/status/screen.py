"""The status of a cluster as tables for one screen, and as one document. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from klamm.admin.types import QuorumReplicaKind
from klamm_cli.status.facts import ClusterFacts
from klamm_cli.status.hosts import Host, hosts_of, state_of
from klamm_cli.status.problems import Problem, used_percent

_MIB = 1024 * 1024
GROUPS_SHOWN = 10
_DISK_COLUMNS = ("broker", "path", "state", "replicas", "used_mib", "free_mib", "disk_used_percent")

_HOST_COLUMNS = ("ids", "host", "rack", "state", "leaders", "replicas", "out_of_sync")

Table = tuple[str, tuple[str, ...], list[tuple[Any, ...]]]
"""The title, the columns and the rows of a table."""


def tables(facts: ClusterFacts) -> list[Table]:
    """Returns the tables that have rows. If a host has several brokers, each host has one line instead of a line for
    each broker."""
    hosts = hosts_of(facts.cluster.brokers)
    is_by_host = len(hosts) < len(facts.cluster.brokers)
    return [
        ("brokers", _HOST_COLUMNS, _hosts(facts, hosts)) if is_by_host and table[0] == "brokers" else table
        for table in _tables(facts)
        if table[2]
    ]


def _tables(facts: ClusterFacts) -> list[Table]:
    return [
        ("controllers", ("id", "address", "role", "end_index", "lag", "silent_ms"), _controllers(facts)),
        ("brokers", ("id", "address", "rack", "state", "leaders", "replicas", "out_of_sync"), _brokers(facts)),
        ("coordinators", ("id", "address", "state"), _coordinators(facts)),
        (
            "log_dirs",
            ("broker", "path", "state", "replicas", "used_mib", "free_mib", "disk_used_percent"),
            _disks(facts),
        ),
        ("groups", ("group", "type", "state", "partitions", "lag", "behind_s", "lost"), _groups(facts)),
    ]


def headline(facts: ClusterFacts, found: Sequence[Problem]) -> str:
    """Returns the first line, such as `cluster kAFi…: healthy`."""
    state = "healthy" if not found else f"degraded, {len(found)} problem{'s' if len(found) > 1 else ''}"
    return f"cluster {facts.cluster.cluster_id}: {state}"


def summary(facts: ClusterFacts) -> list[str]:
    """Returns the lines below the tables, which count topics, transactions and groups."""
    lines = []
    if facts.topics is not None:
        partitions = len(facts.partitions())
        lines.append(
            f"topics {len(facts.topics)}, partitions {partitions}: {len(facts.under_replicated())} under-replicated,"
            f" {len(facts.under_min_isr())} below min.insync.replicas, {len(facts.led_by_resigned())} led by a broker"
            f" that has resigned, {len(facts.offline())} without a leader"
        )
    if facts.open_transactions is not None:
        oldest = f" (oldest {facts.open_transactions[0].open_ms / 1000:.1f} s)" if facts.open_transactions else ""
        hanging = "not looked for" if facts.hanging is None else str(len(facts.hanging))
        lines.append(f"transactions open {len(facts.open_transactions)}{oldest}, hanging {hanging}")
    if facts.groups is not None:
        behind = sum(1 for group in facts.groups if group.lag)
        losers = sum(1 for group in facts.groups if group.lost)
        lost = f", with records lost {losers}" if losers else ""
        left_out = f", {facts.groups_left_out} not looked at" if facts.groups_left_out else ""
        lines.append(f"groups {len(facts.groups) + facts.groups_left_out}, behind {behind}{lost}{left_out}")
    return lines


def document(facts: ClusterFacts, found: Sequence[Problem]) -> dict[str, Any]:
    """Returns the document that `--json` prints. It contains all facts, and lists partitions by name."""
    transactions = [
        {
            "transactional_id": open_transaction.transactional_id,
            "state": open_transaction.state,
            "open_ms": open_transaction.open_ms,
            "timeout_ms": open_transaction.timeout_ms,
            "prepared": open_transaction.is_prepared,
        }
        for open_transaction in facts.open_transactions or ()
    ]
    return {
        "cluster_id": facts.cluster.cluster_id,
        "healthy": not found,
        "problems": [problem.text for problem in found],
        "controller_id": facts.cluster.controller_id,
        "metadata_end_index": facts.cluster.metadata_end_index,
        **{title: [dict(zip(columns, row, strict=True)) for row in rows] for title, columns, rows in _tables(facts)},
        "hosts": [dict(zip(_HOST_COLUMNS, row, strict=True)) for row in _hosts(facts, hosts_of(facts.cluster.brokers))],
        "topics": None if facts.topics is None else len(facts.topics),
        "partitions": {
            "total": len(facts.partitions()),
            "under_replicated": list(map(str, facts.under_replicated())),
            "under_min_isr": list(map(str, facts.under_min_isr())),
            "led_by_resigned": list(map(str, facts.led_by_resigned())),
            "offline": list(map(str, facts.offline())),
        },
        "open_transactions": transactions,
        "hanging_transactions": None if facts.hanging is None else [str(hanging.tp) for hanging in facts.hanging],
        "groups_left_out": facts.groups_left_out,
    }


def _controllers(facts: ClusterFacts) -> list[tuple[Any, ...]]:
    if facts.quorum is None:
        active = facts.cluster.controller_id
        return [
            (
                controller.node_id,
                f"{controller.host}:{controller.port}",
                "leader" if controller.node_id == active else None,
                None,
                None,
                None,
            )
            for controller in facts.cluster.controllers
        ]
    quorum = facts.quorum

    def role(is_voter: bool, node_id: int) -> str:
        if is_voter and node_id == quorum.leader_id:
            return "leader"
        return "follower" if is_voter else "observer"

    return [
        (
            replica.node_id,
            f"{replica.host}:{replica.port}" if replica.host else None,
            role(replica.is_voter, replica.node_id),
            replica.end_index,
            replica.lag,
            replica.silent_ms,
        )
        for replica in quorum.replicas
        if replica.kind is QuorumReplicaKind.CONTROLLER
    ]


def _counts(facts: ClusterFacts) -> tuple[Counter[int], Counter[int], Counter[int]]:
    """Returns the numbers of partitions that each broker leads, of its replicas, and of those out of sync."""
    partitions = [partition for _, partition in facts.partitions()]
    leaders = Counter(partition.leader for partition in partitions)
    replicas = Counter(node_id for partition in partitions for node_id in partition.replicas)
    out_of_sync = Counter(
        node_id for partition in partitions for node_id in set(partition.replicas) - set(partition.isr)
    )
    return leaders, replicas, out_of_sync


def _brokers(facts: ClusterFacts) -> list[tuple[Any, ...]]:
    counts = _counts(facts)
    return [
        (
            broker.node_id,
            f"{broker.host}:{broker.port}",
            broker.rack or None,
            state_of(broker),
            *(None if facts.topics is None else count[broker.node_id] for count in counts),
        )
        for broker in facts.cluster.brokers
    ]


def _hosts(facts: ClusterFacts, hosts: Sequence[Host]) -> list[tuple[Any, ...]]:
    counts = _counts(facts)
    return [
        (
            host.ids,
            host.host,
            host.rack or None,
            host.state,
            *(None if facts.topics is None else host.total(count) for count in counts),
        )
        for host in hosts
    ]


def _coordinators(facts: ClusterFacts) -> list[tuple[Any, ...]]:
    return [
        (coordinator.node_id, f"{coordinator.host}:{coordinator.port}", "fenced" if coordinator.fenced else "live")
        for coordinator in facts.cluster.coordinators
    ]


def _disks(facts: ClusterFacts) -> list[tuple[Any, ...]]:
    return [
        (
            broker_id,
            directory.path,
            "online" if directory.online else "offline",
            len(directory.replicas),
            sum(replica.size_bytes for replica in directory.replicas) // _MIB,
            directory.usable_bytes // _MIB,
            used_percent(directory.total_bytes, directory.usable_bytes),
        )
        for broker_id, directories in sorted(facts.log_dirs.items())
        for directory in directories
    ]


def _groups(facts: ClusterFacts) -> list[tuple[Any, ...]]:
    return [
        (
            group.group_id,
            group.type,
            group.state,
            group.partitions,
            group.lag,
            group.behind_ms // 1000,
            group.lost_count,
        )
        for group in (facts.groups or ())[:GROUPS_SHOWN]
    ]
