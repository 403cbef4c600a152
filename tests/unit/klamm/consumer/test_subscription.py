"""Subscriptions and positions."""

from __future__ import annotations

import re

import pytest

from klamm.consumer.subscription import PositionState, SubscriptionState, SubscriptionType
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


def test_subscribing_says_whether_anything_changed():
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


def test_partitions_that_stay_keep_where_they_are(assigned):
    assigned.seek(A0, 5)
    assigned.pause(A0)
    assigned.assign([A0, B0])
    assert assigned.require(A0).position == 5
    assert assigned.paused() == {A0}
    assert assigned.initializing() == [B0]


def test_every_move_has_a_position_epoch_of_its_own(assigned):
    seen = {assigned.require(A0).position_epoch, assigned.require(A1).position_epoch}
    assigned.seek(A0, 5)
    seen.add(assigned.require(A0).position_epoch)
    assigned.seek(A0, 5)
    seen.add(assigned.require(A0).position_epoch)
    assigned.request_reset(A0, LATEST_TIMESTAMP)
    seen.add(assigned.require(A0).position_epoch)
    assigned.assign([A1])
    assigned.assign([A0, A1])
    seen.add(assigned.require(A0).position_epoch)
    assert len(seen) == 6
    assigned.check_invariants()


def test_a_found_offset_counts_only_while_it_is_waited_for(assigned):
    asked = assigned.require(A0).position_epoch
    assigned.seek(A0, 9)
    assert not assigned.complete(A0, asked, 3, -1)
    assert assigned.require(A0).position == 9
    assigned.request_reset(A1, EARLIEST_TIMESTAMP)
    assert assigned.complete(A1, assigned.require(A1).position_epoch, 3, 7)
    assert assigned.positions()[A1] == OffsetAndMetadata(3, "", 7)
    assert not assigned.complete(B0, 1, 3, -1)


def test_a_reset_takes_the_position_away(assigned):
    assigned.seek(A0, 9)
    assigned.request_reset(A0, 1234)
    assert assigned.resetting() == {A0: 1234}
    assert assigned.require(A0).state is PositionState.RESETTING
    assert A0 not in assigned.positions()


def test_what_is_not_assigned_cannot_be_moved(assigned):
    for move in (assigned.pause, assigned.resume, lambda tp: assigned.seek(tp, 1)):
        with pytest.raises(IllegalStateError, match="b-0 is not assigned"):
            move(B0)
