"""The arithmetic of majorities, and nothing else.

A majority is more than half, so that any two of one set, and any two of sets that differ by one member, overlap
(thesis 3.4, 4.1). An empty set has no majority: nothing is ever decided by nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from klamm_controller.raft.messages import ReplicaKey


def majority(voter_count: int) -> int:
    """How many of that many voters decide."""
    return voter_count // 2 + 1


def is_majority(voters: Collection[ReplicaKey], granted: Collection[ReplicaKey]) -> bool:
    """Whether enough of `voters` are among `granted`; the votes of others do not count."""
    return sum(voter in granted for voter in voters) >= majority(len(voters))


def majority_reached(values: Sequence[int]) -> int:
    """The greatest value that a majority has reached, one value per voter (log ends, times of contact, rounds)."""
    assert values, "nobody votes"
    return sorted(values, reverse=True)[majority(len(values)) - 1]
