"""Runs one seed from beginning to end: first with faults while safety is checked, then without faults until liveness is
shown."""

from __future__ import annotations

import random
from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass

from tests.sim.isrsim.cluster import Cluster
from tests.sim.isrsim.controller import turns_of
from tests.sim.isrsim.options import Options
from tests.sim.kit.world import MS, World
from tests.support.violation import require

RECOVERY_MS = 60_000
"""The time after the last fault in which every replica must be in sync again, at the slowest settings."""
GO_ON_MS = 10_000
"""The time after a disk is full in which others must have taken over, at the slowest settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The figures of one seed."""

    seed: int
    event_count: int
    committed_count: int
    acknowledged_count: int
    epoch_count: int


def run_seed(seed: int, trace: deque[str] | None = None, options: Options | None = None) -> Outcome:
    """Runs one seed. Raises AssertionError (Violation among them) if anything is wrong. `trace` then has the events
    that led to it. `options` are those of the seed, unless they are given."""
    world = World(seed)
    options = options or Options.draw(random.Random(seed))
    cluster = Cluster(world, options, trace)
    with turns_of(options.partitions_per_turn) if options.partitions_per_turn else nullcontext():
        cluster.begin()
        world.run_until(world.now_us + options.duration_ms * MS)
        _demand_liveness(cluster)
        _demand_progress_beside_a_full_disk(cluster)
    image = cluster.controller.partition
    assert image is not None
    return Outcome(
        seed=seed,
        event_count=world.event_count,
        committed_count=cluster.checks.committed_offset,
        acknowledged_count=cluster.checks.acknowledged_count,
        epoch_count=image.leader_epoch + 1,
    )


def _demand_liveness(cluster: Cluster) -> None:
    """Within a bound every replica is in sync, and something more is acknowledged."""
    cluster.heal()
    cluster.note("healed")
    acknowledged_count = cluster.checks.acknowledged_count
    end_us = cluster.world.now_us + RECOVERY_MS * MS

    # Without load: a follower that gets one record a round trip would never catch up with some seeds' producers.
    _demand_whole(cluster, end_us)
    while cluster.checks.acknowledged_count == acknowledged_count:
        require(cluster.world.now_us < end_us, "liveness: everybody is in sync, but nothing is acknowledged")
        cluster.produce(cluster.producers[0])
        cluster.world.run_until(cluster.world.now_us + 100 * MS)


def _demand_whole(cluster: Cluster, end_us: int) -> None:
    def is_whole() -> bool:
        image = cluster.controller.partition
        return image is not None and set(image.isr) == set(image.replicas) and not image.adding_replicas

    cluster.world.run_until(end_us, is_whole)
    require(is_whole(), f"liveness: too long after the last fault: {cluster.controller.partition}")


def _demand_progress_beside_a_full_disk(cluster: Cluster) -> None:
    """The leader's disk, then a follower's, has no space: with enough others in sync more is acknowledged soon."""
    for position in (0, 1):
        image = cluster.controller.partition
        assert image is not None
        if len(image.replicas) <= cluster.options.min_isr:
            return
        victim = cluster.brokers[sorted(image.isr, key=lambda one: one != image.leader)[position]]
        cluster.note(f"broker {victim.broker_id} has no space")
        victim.disk.room = 0
        end_offset = max(broker.log.log_end_offset for broker in cluster.brokers.values())
        end_us = cluster.world.now_us + GO_ON_MS * MS
        while cluster.checks.committed_offset <= end_offset:
            require(
                cluster.world.now_us < end_us,
                f"liveness: broker {victim.broker_id} has no space, and nothing is acknowledged for {GO_ON_MS} ms:"
                f" {cluster.controller.partition}",
            )
            cluster.produce(cluster.producers[0])
            cluster.world.run_until(cluster.world.now_us + 100 * MS)
        victim.disk.room = None
        _demand_whole(cluster, cluster.world.now_us + RECOVERY_MS * MS)
