"""The transition table against Kafka's, which lists the legal predecessors of each state."""

from __future__ import annotations

import pytest

from klamm_coordinator.group.group import Group
from klamm_coordinator.group.states import TRANSITIONS, GroupState

PREDECESSORS = {
    "Empty": {"PreparingRebalance"},
    "PreparingRebalance": {"Stable", "CompletingRebalance", "Empty"},
    "CompletingRebalance": {"PreparingRebalance"},
    "Stable": {"CompletingRebalance"},
    "Dead": {"Stable", "PreparingRebalance", "CompletingRebalance", "Empty"},
}


def test_the_table_is_kafkas():
    ours = {
        state.value: {former.value for former, successors in TRANSITIONS.items() if state in successors}
        for state in GroupState
    }

    assert ours == PREDECESSORS


@pytest.mark.parametrize("target", [GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY])
def test_an_illegal_move_is_refused(target):
    with pytest.raises(AssertionError, match="g: Empty ->"):
        Group("g").transition_to(target, 0)
