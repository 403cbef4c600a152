"""Runs one seed from beginning to end: first with faults while safety is checked, then without faults until liveness is
shown."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

from tests.sim.kit.world import MS, World
from tests.sim.txnsim.cluster import Cluster
from tests.sim.txnsim.options import Options
from tests.support.violation import require

RECOVERY_MS = 15_000
"""The time after the last fault in which all producers must have committed again."""
QUIET_MS = 10_000
"""The time after the producers have stopped, at whose end no transaction may be open. It covers time-outs, and messages
that are late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The figures of one seed."""

    seed: int
    event_count: int
    committed_count: int


def run_seed(seed: int, trace: deque[str] | None = None) -> Outcome:
    """Runs one seed. Raises AssertionError (Violation among them) if anything is wrong. `trace` then has the events
    that led to it."""
    world = World(seed)
    options = Options.draw(random.Random(seed))
    cluster = Cluster(world, options, trace)
    cluster.begin()
    world.run_until(options.duration_ms * MS)
    cluster.heal()
    cluster.note("healed")
    _demand_commits(cluster)
    cluster.stop_producers()
    cluster.note("producers stopped")
    world.run_until(world.now_us + QUIET_MS * MS)
    cluster.checks.check_nothing_hangs()
    cluster.checks.check_readers()
    return Outcome(seed=seed, event_count=world.event_count, committed_count=cluster.checks.committed_count)


def _demand_commits(cluster: Cluster) -> None:
    """Within a bound some producer of every transactional id commits something."""
    before = {
        id(instance): instance.committed_count for instances in cluster.producers.values() for instance in instances
    }

    def has_committed(transactional_id: str) -> bool:
        return any(
            producer.committed_count > before.get(id(producer), 0) for producer in cluster.producers[transactional_id]
        )

    def is_done() -> bool:
        return all(has_committed(one) for one in cluster.ids)

    cluster.world.run_until(cluster.world.now_us + RECOVERY_MS * MS, is_done)
    stuck = [one for one in cluster.ids if not has_committed(one)]
    require(not stuck, f"liveness: {stuck} committed nothing in {RECOVERY_MS} ms after the last fault")
