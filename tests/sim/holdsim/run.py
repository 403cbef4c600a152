"""One seed of the simulation."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from klamm_broker.maintenance import held_retention
from tests.sim.holdsim.cluster import Cluster


class Outcome(NamedTuple):
    """The figures of one seed."""

    event_count: int
    committed_count: int
    """Commits of offsets that were stored."""
    deleted_count: int
    """Segments that leaders have deleted."""


def run_seed(seed: int, trace: deque[str] | None = None) -> Outcome:
    """Runs one seed. Raises AssertionError if a property does not hold."""
    with _without_warnings():
        cluster = Cluster(seed, trace)
        cluster.run()
    return Outcome(cluster.world.event_count, cluster.commit_count, cluster.checks.deleted_count)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Bounds are reached all the time here, and each time is a line in the log."""
    level = held_retention.log.level
    held_retention.log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        held_retention.log.setLevel(level)
