"""Runs one seed from beginning to end: first with faults while safety is checked, then without faults until liveness is
shown."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

from tests.sim.kit.world import MS, World
from tests.sim.raftsim.cluster import Cluster
from tests.sim.raftsim.decisions import Decision
from tests.sim.raftsim.options import Options
from tests.sim.raftsim.workload import Workload
from tests.support.violation import require

ELECTION_TIMEOUTS_TO_RECOVER = 60
"""The number of election time-outs after the last fault in which all replicas must agree again."""
CATCH_UP_MS_PER_ENTRY = 3
"""Beside that, for a replica that has to be sent everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The figures of one seed."""

    seed: int
    event_count: int
    committed_count: int
    acknowledged_count: int
    read_count: int
    term_count: int


def run_seed(seed: int, trace: deque[str] | None = None, decisions: list[Decision] | None = None) -> Outcome:
    """Runs one seed. Raises AssertionError (Violation among them) if anything is wrong. `trace` then describes the
    events that led to it, and `decisions` can replay them."""
    world = World(seed)
    options = Options.draw(random.Random(seed))
    cluster = Cluster(world, options, trace, decisions)
    workload = Workload(cluster)
    cluster.start()
    workload.start()
    world.run_until(options.duration_ms * MS)
    workload.stop()
    _demand_liveness(cluster, workload)
    return Outcome(
        seed=seed,
        event_count=world.event_count,
        committed_count=cluster.history.committed_end_index,
        acknowledged_count=cluster.acknowledged_count,
        read_count=cluster.read_count,
        term_count=max(replica.term for replica in cluster.replicas.values()),
    )


def _demand_liveness(cluster: Cluster, workload: Workload) -> None:
    """Requires that a leader commits within a time limit, and that all replicas then get its entries."""
    world = cluster.world
    end_us = world.now_us + ELECTION_TIMEOUTS_TO_RECOVER * cluster.options.election_timeout_max_ms * MS
    # Some seeds' settings allow only one entry per round trip, and a replica may have none of the entries.
    end_us += CATCH_UP_MS_PER_ENTRY * MS * cluster.history.committed_end_index
    world.run_until(end_us, lambda: _has_active_leader(cluster))
    require(_has_active_leader(cluster), "liveness: nobody leads after the faults ended")
    committed_end_index = cluster.history.committed_end_index
    while world.now_us < end_us and not _all_applied(cluster, committed_end_index + 1):
        # Again and again: a leader that is handing over takes nothing on.
        for leader in cluster.leaders():
            workload.propose_at(leader)
        until_us = world.now_us + cluster.options.election_timeout_ms * MS
        world.run_until(until_us, lambda: _all_applied(cluster, committed_end_index + 1))
    behind = {
        replica.key: replica.applied_end_index
        for replica in cluster.replicas.values()
        if replica.applied_end_index <= committed_end_index
    }
    require(not behind, f"liveness: nothing more is committed than {committed_end_index}, or not known to {behind}")


def _has_active_leader(cluster: Cluster) -> bool:
    return any(leader.node is not None and leader.node.is_active for leader in cluster.leaders())


def _all_applied(cluster: Cluster, end_index: int) -> bool:
    return all(replica.applied_end_index >= end_index for replica in cluster.replicas.values())
