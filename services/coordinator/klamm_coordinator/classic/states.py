"""The states of a classic group and the only moves between them.

    Empty                no members; its offsets may live on
    PreparingRebalance   members are (re)joining: heartbeats answer REBALANCE_IN_PROGRESS
    CompletingRebalance  a generation has begun, the leader's assignments are awaited
    Stable               every member has, or may ask for, its assignment
    Dead                 being deleted: requests are sent to look for the coordinator again

Follows Kafka's ClassicGroupState.
"""

from __future__ import annotations

import enum


class ClassicGroupState(enum.Enum):
    """Values are the names people see."""

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
