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


class GroupState(enum.Enum):
    """Values are the names people see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}
"""From each state, where it can go."""
