"""The simulation of groups that change between the classic and the consumer protocol (KIP-848)."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace
from typing import Any, Final

from klamm_coordinator.classic.group import ClassicGroup
from klamm_coordinator.classic.member import ClassicMember
from klamm_coordinator.classic.subscription import encode_assignment
from klamm_coordinator.kip848 import downgrade, upgrade
from klamm_coordinator.kip848.group import ConsumerGroup
from klamm_coordinator.records.consumer_group_schemas import NO_PARTITIONS, ConsumerMemberMetadata, Partitions
from tests.sim.groupsim.mixed_world import MixedWorld
from tests.sim.groupsim.options import Options
from tests.sim.groupsim.run import Outcome
from tests.sim.kit.mutation import Mutation
from tests.sim.kit.runner import Model

_member = downgrade._member


def _with_its_target(group: ConsumerGroup, member_id: str, member: ConsumerMemberMetadata) -> ClassicMember:
    target = encode_assignment(group.by_topic(group.target(member_id)), 1)
    return replace(_member(group, member_id, member), assignment=target)


def _nothing_assigned(classic: ClassicGroup, topics: Any) -> dict[str, Partitions]:
    return dict.fromkeys(classic.members, NO_PARTITIONS)


MUTATIONS: Final[dict[str, Mutation]] = {
    "targets-for-owned": Mutation(
        what="a downgrade stores what members are to have instead of what they have",
        known_seed=380,
        changes=((downgrade, "_member", _with_its_target),),
    ),
    "forgotten-assignments": Mutation(
        what="an upgrade forgets what the leader has assigned",
        known_seed=0,
        changes=((upgrade, "_assigned", _nothing_assigned),),
    ),
}


def run_seed(seed: int, trace: deque[str] | None = None) -> Outcome:
    """Runs one seed. Raises AssertionError if a property does not hold."""
    world = MixedWorld(seed, trace)
    world.run()
    group = world.rules.state.consumer_groups[world.group_id]
    return Outcome(world.upgrade_count + world.downgrade_count, world.commit_count, group.epoch)


MIXED_GROUP: Final = Model(
    name="mixed-group",
    mutations=MUTATIONS,
    run_seed=run_seed,
    describe=lambda seed: Options.draw(random.Random(seed)).describe(),
)
