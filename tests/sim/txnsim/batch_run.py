"""Runs one seed of a query with an exactly-once sink: with faults, then without faults until it makes progress. At the
end, the output is counted."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace

from tests.sim.kit.world import MS, World
from tests.sim.txnsim.cluster import Cluster
from tests.sim.txnsim.options import Options
from tests.sim.txnsim.query import Query
from tests.sim.txnsim.run import QUIET_MS, RECOVERY_MS, Outcome
from tests.support.violation import require


def draw(seed: int) -> Options:
    """Few other producers, and faults of the query drawn apart."""
    rng = random.Random(seed)
    options = Options.draw(rng)
    return replace(
        options,
        id_count=1,
        duration_ms=3_000,
        # Long enough for tasks to get through, mostly.
        transaction_timeout_ms=max(500, options.transaction_timeout_ms),
        prepared_timeout_ms=rng.choice((300, 2_000)),
    )


def run_seed(seed: int, trace: deque[str] | None = None) -> Outcome:
    """Runs one seed, as `txnsim.run.run_seed` does."""
    world = World(seed)
    cluster = Cluster(world, draw(seed), trace)
    query = Query(cluster)
    rng = random.Random(seed + 1)
    cluster.begin()
    query.watch()
    cluster.repeat(rng.choice((200, 1_000, 5_000)), query.crash)
    cluster.repeat(rng.choice((0, 300, 2_000)), query.start_run)
    world.run_until(cluster.options.duration_ms * MS)
    cluster.heal()
    cluster.note("healed")
    before = query.checkpoint
    world.run_until(world.now_us + RECOVERY_MS * MS, lambda: query.checkpoint > before + 1)
    require(query.checkpoint > before + 1, f"liveness: no batch in {RECOVERY_MS} ms after the last fault")
    query.stop()
    cluster.stop_producers()
    cluster.note("stopped")
    world.run_until(world.now_us + QUIET_MS * MS)
    cluster.checks.check_nothing_hangs()
    cluster.checks.check_readers()
    query.checks.check()
    return Outcome(seed=seed, event_count=world.event_count, committed_count=query.checks.counting_count)
