"""Tests the transition table against Kafka's, which lists the legal predecessors of each state."""

from __future__ import annotations

import pytest

from klamm_coordinator.classic.group import ClassicGroup
from klamm_coordinator.classic.states import TRANSITIONS, ClassicGroupState

PREDECESSORS = {
    "Empty": {"PreparingRebalance"},
    "PreparingRebalance": {"Stable", "CompletingRebalance", "Empty"},
    "CompletingRebalance": {"PreparingRebalance"},
    "Stable": {"CompletingRebalance"},
    "Dead": {"Stable", "PreparingRebalance", "CompletingRebalance", "Empty"},
}


def test_the_state_transitions_equal_kafkas():
    ours = {
        state.value: {former.value for former, successors in TRANSITIONS.items() if state in successors}
        for state in ClassicGroupState
    }

    assert ours == PREDECESSORS


@pytest.mark.parametrize(
    "target", [ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.EMPTY]
)
def test_an_illegal_state_transition_is_refused(target):
    with pytest.raises(AssertionError, match="g: Empty ->"):
        ClassicGroup("g").transition_to(target, 0)
