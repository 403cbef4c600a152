"""Tests a position alone. test_subscription.py tests it with subscriptions and leaders."""

from __future__ import annotations

import itertools

import pytest

from klamm.consumer.partition_state import PartitionState, PositionState, Validation
from klamm.consumer.position_reset import LostPosition
from klamm.model import TopicPartition

TP = TopicPartition("a", 0)


@pytest.fixture
def state() -> PartitionState:
    return PartitionState(itertools.count(1))


def test_a_partition_starts_without_a_position(state):
    assert state.state is PositionState.INITIALIZING
    assert not state.fetchable
    state.check_invariants(TP)


def test_a_seek_with_an_epoch_waits_for_validation(state):
    state.seek(5)
    assert state.fetchable
    state.seek(5, 3)
    assert state.state is PositionState.VALIDATING
    assert state.validation == Validation(3, 5, 3)
    state.complete_validation(4, 2, 7)
    assert (state.position, state.leader_epoch, state.current_leader_epoch) == (4, 2, 7)
    assert state.fetchable
    state.check_invariants(TP)


def test_a_paused_partition_is_not_fetched_and_keeps_its_position(state):
    state.seek(5)
    epoch = state.position_epoch
    state.paused = True
    assert not state.fetchable
    state.paused = False
    assert (state.fetchable, state.position, state.position_epoch) == (True, 5, epoch)


def test_a_reset_and_a_new_fetch_make_the_old_fetch_stale(state):
    state.seek(5)
    epochs = [state.position_epoch]
    state.refetch()
    epochs.append(state.position_epoch)
    state.request_reset(1234)
    epochs.append(state.position_epoch)
    assert len(set(epochs)) == 3
    assert (state.state, state.reset_timestamp_ms) == (PositionState.RESETTING, 1234)


@pytest.mark.parametrize("seeks", [lambda state: state.seek(9), lambda state: state.request_reset(1234)])
def test_a_seek_or_reset_by_the_user_ends_the_reset_of_a_lost_position(state, seeks):
    state.seek(5)
    state.request_reset(1234, LostPosition(5, 7, 9))
    assert state.lost == LostPosition(5, 7, 9)
    seeks(state)
    assert state.lost is None


def test_a_suspect_position_without_an_epoch_is_fetched_again_and_not_validated(state):
    state.seek(5)
    state.check_leader(3)
    epoch = state.position_epoch
    state.suspect = True
    state.check_leader(3)
    assert state.fetchable
    assert not state.suspect
    assert state.position_epoch != epoch
