"""The arithmetic of majorities, and nothing else.

A majority is more than half, so that any two of one set, and any two of sets that differ by one member, overlap
(thesis 3.4, 4.1). An empty set has no majority: nothing is ever decided by nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum

from klamm_controller.raft.messages import ReplicaKey


class VoteResult(Enum):
    """How an election stands."""

    PENDING = "pending"
    WON = "won"
    LOST = "lost"


def majority(voter_count: int) -> int:
    """How many of that many voters decide."""
    return voter_count // 2 + 1


def vote_result(
    voters: Collection[ReplicaKey], granted: Collection[ReplicaKey], refused: Collection[ReplicaKey]
) -> VoteResult:
    """The outcome as far as it is certain; only the votes of `voters` count."""
    needed = majority(len(voters))
    if sum(voter in granted for voter in voters) >= needed:
        return VoteResult.WON
    if len(voters) - sum(voter in refused for voter in voters) < needed:
        return VoteResult.LOST
    return VoteResult.PENDING


def majority_reached(values: Sequence[int]) -> int:
    """The greatest value that a majority has reached, one value per voter (log ends, times of contact, rounds)."""
    assert values, "nobody votes"
    return sorted(values, reverse=True)[majority(len(values)) - 1]
