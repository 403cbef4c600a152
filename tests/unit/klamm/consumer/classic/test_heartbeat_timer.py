"""Tests the timers of a member. The tests of their effects are in test_membership.py."""

from __future__ import annotations

import pytest

from klamm.consumer.classic.heartbeat_timer import HeartbeatTimer


@pytest.fixture
def heartbeat() -> HeartbeatTimer:
    made = HeartbeatTimer(interval_ms=30, session_timeout_ms=100)
    made.begin(1_000)
    return made


def test_a_heartbeat_is_due_after_the_interval_unless_one_is_in_flight(heartbeat):
    assert heartbeat.next_deadline_ms() == 1_030
    assert not heartbeat.take_due(1_029)
    assert heartbeat.take_due(1_030)
    assert not heartbeat.take_due(1_060)
    assert heartbeat.next_deadline_ms() == 1_100
    heartbeat.reset()
    assert heartbeat.take_due(1_060)


def test_a_session_expires_without_answers_and_then_begins_again(heartbeat):
    heartbeat.on_answer(1_020)
    assert heartbeat.take_due(1_030)
    assert not heartbeat.take_expiry(1_119)
    assert heartbeat.take_expiry(1_120)
    assert not heartbeat.take_expiry(1_121)
    assert heartbeat.take_due(1_121), "the one under way is not waited for"


def test_a_heartbeat_retry_is_due_at_the_given_time(heartbeat):
    heartbeat.take_due(1_030)
    heartbeat.reset()
    heartbeat.retry_at(1_045)
    assert heartbeat.next_deadline_ms() == 1_045
