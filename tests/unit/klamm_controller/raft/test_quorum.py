"""Tests the arithmetic of majorities against the most obvious way to count."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_controller.raft.messages import ReplicaKey
from klamm_controller.raft.quorum import is_majority, majority, majority_reached

KEYS = [ReplicaKey(node_id, "a") for node_id in range(7)]


def naive_majority_reached(values: list[int]) -> int:
    """Returns the greatest value that more than half of the voters have reached."""
    return max(value for value in values if 2 * sum(other >= value for other in values) > len(values))


@given(st.lists(st.integers(0, 20), min_size=1, max_size=9))
def test_majority_reached_is_the_value_that_more_than_half_reached(values: list[int]) -> None:
    assert majority_reached(values) == naive_majority_reached(values)


@given(st.sets(st.sampled_from(KEYS)), st.sets(st.sampled_from(KEYS)))
def test_only_the_votes_of_voters_count(voters: set[ReplicaKey], granted: set[ReplicaKey]) -> None:
    assert is_majority(sorted(voters), granted) == (2 * len(voters & granted) > len(voters))


@pytest.mark.parametrize("voter_count", range(1, 7))
def test_any_two_majorities_overlap_also_after_one_change(voter_count: int) -> None:
    voters = KEYS[:voter_count]
    for changed in (voters, KEYS[: voter_count + 1]):
        for combination in combinations(voters, majority(len(voters))):
            for other in combinations(changed, majority(len(changed))):
                assert set(combination) & set(other)
