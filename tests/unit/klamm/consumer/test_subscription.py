"""Tests subscriptions and positions."""

from __future__ import annotations

import re

import pytest

from klamm.consumer.partition_state import PositionState, Validation
from klamm.consumer.subscription import SubscriptionState, SubscriptionType
from klamm.errors import IllegalStateError
from klamm.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from klamm.offsets import OffsetAndMetadata

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.fixture
def assigned() -> SubscriptionState:
    state = SubscriptionState()
    state.assign([A0, A1])
    return state


def test_kinds_of_subscription_exclude_each_other():
    state = SubscriptionState()
    state.subscribe_topics(["a"])
    with pytest.raises(IllegalStateError, match="unsubscribe before"):
        state.assign([A0])
    with pytest.raises(IllegalStateError, match="unsubscribe before"):
        state.subscribe_pattern(re.compile("a"))
    state.unsubscribe()
    state.assign([A0])
    assert state.type is SubscriptionType.ASSIGNED


def test_subscribe_topics_returns_whether_the_topics_changed():
    state = SubscriptionState()
    assert state.subscribe_topics(["a", "b"])
    assert not state.subscribe_topics(["b", "a"])


def test_a_pattern_matches_whole_names():
    state = SubscriptionState()
    state.subscribe_pattern(re.compile("log-.*"))
    assert state.match_topics(["log-1", "my-log-1", "log-2"])
    assert state.topics == {"log-1", "log-2"}
    assert not state.match_topics(["log-2", "log-1", "other"])


def test_a_new_partition_waits_for_a_position(assigned):
    assert assigned.initializing() == [A0, A1]
    assert assigned.positions() == {}
    assert not assigned.require(A0).fetchable


def test_partitions_that_stay_assigned_keep_position_and_pause(assigned):
    assigned.require(A0).seek(5)
    assigned.require(A0).paused = True
    assigned.assign([A0, B0])
    assert assigned.require(A0).position == 5
    assert assigned.paused() == {A0}
    assert assigned.initializing() == [B0]


def test_each_change_of_a_position_gets_a_new_position_epoch(assigned):
    seen = {assigned.require(A0).position_epoch, assigned.require(A1).position_epoch}
    assigned.require(A0).seek(5)
    seen.add(assigned.require(A0).position_epoch)
    assigned.require(A0).seek(5)
    seen.add(assigned.require(A0).position_epoch)
    assigned.require(A0).request_reset(LATEST_TIMESTAMP)
    seen.add(assigned.require(A0).position_epoch)
    assigned.assign([A1])
    assigned.assign([A0, A1])
    seen.add(assigned.require(A0).position_epoch)
    assert len(seen) == 6
    assigned.check_invariants()


def test_a_found_offset_is_applied_only_for_the_current_position_epoch(assigned):
    asked = assigned.require(A0).position_epoch
    assigned.require(A0).seek(9)
    assert not assigned.complete(A0, asked, 3, -1)
    assert assigned.require(A0).position == 9
    assigned.require(A1).request_reset(EARLIEST_TIMESTAMP)
    assert assigned.complete(A1, assigned.require(A1).position_epoch, 3, -1)
    assert assigned.positions()[A1] == OffsetAndMetadata(3, "", -1)
    assert not assigned.complete(B0, 1, 3, -1)


def test_a_reset_removes_the_position(assigned):
    assigned.require(A0).seek(9)
    assigned.require(A0).request_reset(1234)
    assert assigned.resetting() == {A0: 1234}
    assert assigned.require(A0).state is PositionState.RESETTING
    assert A0 not in assigned.positions()


def test_a_partition_that_is_not_assigned_is_refused(assigned):
    with pytest.raises(IllegalStateError, match="b-0 is not assigned"):
        assigned.require(B0)


# --- positions and leaders


@pytest.fixture
def reading(assigned) -> SubscriptionState:
    """Returns a state that has read A0 up to 9, with records and leader of epoch 3. A1 has no position."""
    assigned.require(A0).seek(5)
    assigned.check_leaders(lambda _: 3)
    assigned.require(A0).position, assigned.require(A0).leader_epoch = 9, 3
    return assigned


def test_a_seek_with_an_epoch_is_validated_before_anything_is_fetched(assigned):
    assigned.require(A0).seek(5, 3)
    state = assigned.require(A0)
    assert assigned.validating() == {A0: Validation(state.position_epoch, 5, 3)}
    assert not state.fetchable
    assert A0 not in assigned.positions()
    assigned.check_invariants()


def test_a_committed_offset_with_an_epoch_is_validated(assigned):
    assert assigned.complete(A0, assigned.require(A0).position_epoch, 5, 3)
    assert set(assigned.validating()) == {A0}
    assert assigned.complete(A1, assigned.require(A1).position_epoch, 5, -1)
    assert assigned.require(A1).fetchable


def test_under_the_same_leader_a_position_stays_valid(reading):
    epoch = reading.require(A0).position_epoch
    reading.check_leaders(lambda _: 3)
    assert reading.require(A0).position_epoch == epoch
    assert reading.require(A0).fetchable


def test_a_new_leader_epoch_requires_validation_and_drops_prefetched_data(reading):
    epoch = reading.require(A0).position_epoch
    reading.check_leaders(lambda _: 4)
    state = reading.require(A0)
    assert reading.validating() == {A0: Validation(state.position_epoch, 9, 3)}
    assert state.position_epoch != epoch
    assert not reading.is_unchecked


def test_a_position_stays_valid_while_there_is_no_leader(reading):
    reading.check_leaders(lambda _: -1)
    assert reading.require(A0).fetchable
    reading.check_leaders(lambda _: 3)
    assert reading.require(A0).fetchable


def test_a_position_without_an_epoch_is_not_validated_after_a_leader_change(assigned):
    assigned.require(A0).seek(5)
    epoch = assigned.require(A0).position_epoch
    assigned.check_leaders(lambda _: 3)
    assigned.check_leaders(lambda _: 4)
    assert assigned.require(A0).fetchable
    assert assigned.require(A0).position_epoch == epoch


def test_a_suspect_position_is_validated_under_the_same_leader(reading):
    reading.suspect(A0)
    assert reading.is_unchecked
    assert reading.require(A0).fetchable, "until the next poll: its records may be being read"
    reading.check_leaders(lambda _: 3)
    assert set(reading.validating()) == {A0}
    assert not reading.require(A0).suspect


def test_a_validation_is_current_only_for_the_position_it_was_requested_for(reading):
    reading.check_leaders(lambda _: 4)
    asked = reading.validating()[A0]
    assert reading.is_validating(A0, asked)
    reading.require(A0).seek(1, 2)
    assert not reading.is_validating(A0, asked)
    assert not reading.is_validating(B0, asked)


def test_a_leader_change_during_a_validation_is_detected_after_it(reading):
    reading.check_leaders(lambda _: 4)
    reading.complete_validation(A0, 9, 3, current_leader_epoch=4)
    assert reading.is_unchecked
    reading.check_leaders(lambda _: 4)
    assert reading.require(A0).fetchable
    reading.check_leaders(lambda _: 5)
    assert set(reading.validating()) == {A0}


def test_refetch_changes_only_the_position_epoch(reading):
    epoch = reading.require(A0).position_epoch
    reading.require(A0).refetch()
    state = reading.require(A0)
    assert (state.position, state.leader_epoch, state.current_leader_epoch) == (9, 3, 3)
    assert state.position_epoch != epoch
    assert state.fetchable
