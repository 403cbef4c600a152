"""What is wrong with a cluster, in sentences, the worst first. Pure.

A cluster without any is healthy: every server is there, every partition has its replicas in sync, and there is room on
the disks. Lag and transactions that are open are its clients' business; a transaction that hangs is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from klamm.admin.types import ClusterDescription, QuorumDescription, QuorumReplicaKind
from klamm.cli.status.facts import ClusterFacts
from klamm.model import TopicPartition

LISTED_MAX: Final = 10
"""Partitions named in a sentence."""
DISK_FULL_PERCENT: Final = 90
SILENT_MS_MAX: Final = 5_000
"""Controllers fetch from their leader several times a second, others heartbeat every two seconds."""
QUORUM_LAG_MAX: Final = 1_000
"""Entries."""


def problems(facts: ClusterFacts) -> list[str]:
    """Empty: healthy."""
    return [
        *_of_controllers(facts),
        *_of_partitions(facts),
        *_of_servers(facts.cluster),
        *_of_disks(facts),
        *_of_transactions(facts),
        *(f"{part}: not known ({reason})" for part, reason in facts.unknown.items()),
    ]


def name_some(tps: Sequence[object]) -> str:
    """`a-0, a-1 and 5 more`."""
    shown = ", ".join(map(str, tps[:LISTED_MAX]))
    return f"{shown} and {len(tps) - LISTED_MAX} more" if len(tps) > LISTED_MAX else shown


def _of_controllers(facts: ClusterFacts) -> Iterator[str]:
    if facts.cluster.controller_id < 0:
        yield "no controller is active: metadata cannot change, leaders cannot be elected"
    if facts.quorum is not None:
        yield from _of_quorum(facts.quorum)


def _of_quorum(quorum: QuorumDescription) -> Iterator[str]:
    for each in quorum.replicas:
        name = f"{each.kind.name.lower()} {each.node_id}"
        if each.kind is not QuorumReplicaKind.CONTROLLER or each.node_id == quorum.leader_id:
            continue
        if each.is_voter and each.silent_ms > SILENT_MS_MAX:
            yield f"{name} was last heard {each.silent_ms / 1000:.0f} s ago"
        elif each.is_voter and each.lag > QUORUM_LAG_MAX:
            yield f"{name} is {each.lag} entries behind the leader of its quorum"


def _of_partitions(facts: ClusterFacts) -> Iterator[str]:
    total = len(facts.partitions())
    for found, what in (
        (facts.offline(), "without a leader: neither read nor written"),
        (facts.under_min_isr(), "below min.insync.replicas: refuse records with acks=all"),
        (facts.under_replicated(), "under-replicated"),
    ):
        if found:
            yield f"{len(found)} of {_count(total, 'partition')} {what}: {name_some(found)}"


def _of_servers(cluster: ClusterDescription) -> Iterator[str]:
    for broker in cluster.brokers:
        if broker.fenced:
            yield f"broker {broker.node_id} is fenced: its heartbeats do not come"
        elif broker.in_controlled_shutdown:
            yield f"broker {broker.node_id} is shutting down"
    for coordinator in cluster.coordinators:
        if coordinator.fenced:
            yield f"coordinator {coordinator.node_id} is fenced: its heartbeats do not come"
    for kind, servers in (("broker", cluster.brokers), ("coordinator", cluster.coordinators)):
        if all(each.fenced for each in servers):
            yield f"no {kind} is live"


def _of_disks(facts: ClusterFacts) -> Iterator[str]:
    for broker_id, directories in sorted(facts.log_dirs.items()):
        for each in directories:
            used = used_percent(each.total_bytes, each.usable_bytes)
            if not each.online:
                yield f"broker {broker_id}: log directory {each.path} is offline"
            elif used is not None and used >= DISK_FULL_PERCENT:
                yield f"broker {broker_id}: the disk of {each.path} is {used} % full"


def used_percent(total_bytes: int, usable_bytes: int) -> int | None:
    """Of a file system; None when its size is not known."""
    return round(100 * (total_bytes - usable_bytes) / total_bytes) if total_bytes > 0 else None


def _of_transactions(facts: ClusterFacts) -> Iterator[str]:
    if facts.hanging:
        tps: list[TopicPartition] = sorted({one.tp for one in facts.hanging})
        yield (
            f"{_count(len(facts.hanging), 'transaction')} hanging, nothing after it is read with read_committed:"
            f" {name_some(tps)} (see `klamm transactions find-hanging`)"
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
