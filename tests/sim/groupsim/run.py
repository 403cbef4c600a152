"""One seed of the simulation."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tests.sim.groupsim.world import World


class Outcome(NamedTuple):
    """The figures of one seed."""

    event_count: int
    committed_count: int
    """Commits of offsets that were taken."""
    epoch: int
    """The group's, at the end."""


def run_seed(seed: int, trace: deque[str] | None = None) -> Outcome:
    """Runs one seed. Raises AssertionError if a property does not hold."""
    world = World(seed, trace)
    world.run()
    group = world.rules.state.consumer_groups[world.group_id]
    return Outcome(world.event_count, world.commit_count, group.epoch)
