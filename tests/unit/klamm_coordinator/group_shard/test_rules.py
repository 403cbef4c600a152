"""Tests one step of the shard: the order of its effects, and events at the same moment."""

from __future__ import annotations

from klamm.errors import ErrorCode
from klamm_coordinator.runtime.events import TimePassed


def test_a_heartbeat_at_the_session_deadline_keeps_the_member(driver):
    (member,) = driver.stable(1)
    driver.now_ms = driver.shard.next_deadline_ms()

    assert driver.heartbeat(1, member) is ErrorCode.NONE
    driver.step(TimePassed())
    assert driver.state() == "Stable"


def test_a_group_is_not_forgotten_in_the_step_that_commits_its_first_offset(driver):
    """The id that kept the group alive expires at the moment of the commit."""
    driver.new_member_id(session_timeout_ms=6_000)
    driver.auto_ack = False
    driver.now_ms += 6_000

    reply_id = driver.commit(42)
    driver.ack()

    assert driver.replies[reply_id].errors == (ErrorCode.NONE,)
    assert driver.offset() == 42


def test_a_loaded_group_continues_with_new_sessions(driver):
    members = driver.stable(2)
    driver.advance(9_000)

    driver.crash()

    driver.advance(9_999)
    assert driver.state() == "Stable"
    assert driver.heartbeat(1, members[0]) is ErrorCode.NONE
    driver.advance(1)
    assert driver.state() == "PreparingRebalance"
    assert members[1] not in driver.rules.classic.groups["orders"].members


def test_a_group_that_was_still_joining_is_loaded_as_it_was_last_stored(driver):
    leader, follower = driver.stable(2)
    driver.join(leader)

    driver.crash()

    assert driver.state() == "Stable"
    assert driver.heartbeat(1, follower) is ErrorCode.NONE
    assert driver.synced(driver.sync(1, leader)).assignment == leader.encode()
