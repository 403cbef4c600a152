"""Kafka's four partition assignors, under Kafka's names. An assignor decides which member gets which partitions."""

from __future__ import annotations

from collections.abc import Sequence

from klamm.consumer.assignors.base import Assignments, Assignor, Member, RebalanceProtocol
from klamm.consumer.assignors.range import RangeAssignor
from klamm.consumer.assignors.roundrobin import RoundRobinAssignor
from klamm.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from klamm.errors import ConfigError

__all__ = [
    "ASSIGNORS",
    "Assignments",
    "Assignor",
    "CooperativeStickyAssignor",
    "Member",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "common_protocol",
    "resolve_assignors",
]

ASSIGNORS: dict[str, type[Assignor]] = {
    assignor.name: assignor
    for assignor in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}


def resolve_assignors(strategies: Sequence[str | Assignor]) -> tuple[Assignor, ...]:
    """Returns the assignors for names or assignor objects. Raises ConfigError for an unknown name, a duplicate name, or
    an empty list."""
    assignors = []
    for strategy in strategies:
        if isinstance(strategy, str):
            if strategy not in ASSIGNORS:
                raise ConfigError(
                    f"partition.assignment.strategy: {strategy!r} is unknown; expected {', '.join(ASSIGNORS)}"
                )
            strategy = ASSIGNORS[strategy]()
        assignors.append(strategy)
    names = [assignor.name for assignor in assignors]
    if not names or len(set(names)) != len(names):
        raise ConfigError(f"partition.assignment.strategy: {names}; expected one or more different names")
    common_protocol(assignors)
    return tuple(assignors)


def common_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Returns the newest rebalance protocol that all assignors support. A cooperative assignor also works eagerly
    (KIP-429's upgrade path)."""
    return RebalanceProtocol(min(assignor.rebalance_protocol for assignor in assignors))
