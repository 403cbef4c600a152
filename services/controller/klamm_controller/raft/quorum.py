"""The arithmetic of majorities.

A majority is more than half of the voters. So any two majorities of one set overlap, and so do majorities of two sets
that differ by one voter (thesis 3.4, 4.1). An empty set has no majority, so it never decides anything.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from klamm_controller.raft.messages import ReplicaKey


def majority(voter_count: int) -> int:
    """Returns the size of a majority of `voter_count` voters."""
    return voter_count // 2 + 1


def is_majority(voters: Collection[ReplicaKey], granted: Collection[ReplicaKey]) -> bool:
    """Returns True if a majority of `voters` is in `granted`. Replicas that are not voters do not count."""
    return sum(voter in granted for voter in voters) >= majority(len(voters))


def majority_reached(values: Sequence[int]) -> int:
    """Returns the greatest value that a majority has reached. `values` has one value per voter: log ends, times of
    contact or rounds."""
    assert values, "nobody votes"
    return sorted(values, reverse=True)[majority(len(values)) - 1]
