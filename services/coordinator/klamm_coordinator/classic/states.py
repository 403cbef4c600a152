"""The states of a classic group and the only moves between them.

    Empty                no members; the group may still have offsets
    PreparingRebalance   members are (re)joining: heartbeats answer REBALANCE_IN_PROGRESS
    CompletingRebalance  a generation has begun, and the group waits for the leader's assignments
    Stable               every member has, or may ask for, its assignment
    Dead                 the group is being deleted: requests get COORDINATOR_NOT_AVAILABLE

Follows Kafka's ClassicGroupState.
"""

from __future__ import annotations

import enum


class ClassicGroupState(enum.Enum):
    """The state of a classic group. The values are the names that tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: dict[ClassicGroupState, frozenset[ClassicGroupState]] = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD}),
    ClassicGroupState.PREPARING_REBALANCE: frozenset(
        {ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.EMPTY, ClassicGroupState.DEAD}
    ),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset(
        {ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD}
    ),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD}),
    ClassicGroupState.DEAD: frozenset(),
}
"""The states that can follow each state."""
