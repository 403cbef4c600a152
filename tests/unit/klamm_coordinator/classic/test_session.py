"""Tests how members stay and leave: heartbeats, session timeouts, LeaveGroup."""

from __future__ import annotations

import pytest

from klamm.errors import ErrorCode


def test_a_heartbeat_keeps_the_session(driver):
    leader, follower = driver.stable(2)
    for _ in range(10):
        driver.advance(9_999)
        assert driver.heartbeat(1, leader) is ErrorCode.NONE
        assert driver.heartbeat(1, follower) is ErrorCode.NONE


def test_a_member_is_removed_after_the_session_timeout(driver):
    leader, follower = driver.stable(2)
    driver.advance(5_000)
    driver.heartbeat(1, leader)
    driver.advance(4_999)
    assert driver.state() == "Stable"

    driver.advance(1)

    assert driver.state() == "PreparingRebalance"
    assert driver.heartbeat(1, follower) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(1, leader) is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_empty_generation_is_stored_when_the_last_member_expires(driver):
    driver.stable(1)

    driver.advance(10_000)

    assert driver.state() == "Empty"
    stored = driver.rules.state.groups["orders"]
    assert (stored.generation_id, stored.members, stored.protocol_type) == (2, (), "consumer")


def test_a_parked_join_keeps_the_session(driver):
    leader, follower = driver.stable(2, rebalance_timeout_ms=60_000)
    parked = driver.join(leader)
    for _ in range(5):
        driver.advance(9_000)
        driver.heartbeat(1, follower)

    assert parked not in driver.replies
    assert leader in driver.rules.classic.groups["orders"].members


def test_a_commit_keeps_the_session(driver):
    (member,) = driver.stable(1)
    for offset in range(5):
        driver.advance(9_000)
        driver.commit(offset, generation_id=1, member_id=member)

    assert driver.heartbeat(1, member) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("kwargs", "error"),
    [
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": -1}, ErrorCode.ILLEGAL_GENERATION),
        ({"instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_id": "elsewhere"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_heartbeat_of_an_unknown_member_or_another_generation_is_refused(driver, kwargs, error):
    (member,) = driver.stable(1)

    assert driver.heartbeat(**({"generation_id": 1, "member_id": member} | kwargs)) is error


class TestLeaving:
    def test_a_member_that_leaves_starts_a_rebalance_at_once(self, driver):
        leader, follower = driver.stable(2)

        assert driver.leave((follower, None)) == (ErrorCode.NONE,)

        assert driver.heartbeat(1, leader) is ErrorCode.REBALANCE_IN_PROGRESS

    def test_the_last_member_leaves_an_empty_group(self, driver):
        (member,) = driver.stable(1)

        driver.leave((member, None))

        assert driver.state() == "Empty"
        assert driver.rules.state.groups["orders"].members == ()

    def test_kip_345_an_administrator_removes_a_static_member_by_its_instance(self, driver):
        driver.stable(1, instances=("worker-1",))

        assert driver.leave(("", "worker-1"), ("", "worker-2")) == (
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_MEMBER_ID,
        )
        assert driver.rules.classic.groups["orders"].static_members == {}

    def test_each_member_of_a_leave_request_has_its_own_result(self, driver):
        leader, follower = driver.stable(2)

        assert driver.leave(("stranger", None), (follower, None)) == (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.NONE,
        )
        assert list(driver.rules.classic.groups["orders"].members) == [leader]

    def test_a_pending_member_id_can_leave(self, driver):
        member_id = driver.new_member_id()

        assert driver.leave((member_id, None)) == (ErrorCode.NONE,)
        assert driver.rules.classic.groups == {}

    def test_a_parked_join_of_a_member_that_leaves_is_answered(self, driver):
        leader, follower = driver.stable(2)
        join = driver.join(leader)

        driver.leave((leader, None))

        assert driver.joined(join).error is ErrorCode.UNKNOWN_MEMBER_ID
        assert follower in driver.rules.classic.groups["orders"].members

    def test_a_parked_sync_of_a_member_that_leaves_is_answered(self, driver):
        ids = [driver.new_member_id() for _ in range(2)]
        joins = [driver.join(member_id) for member_id in ids]
        driver.advance(9_000)
        leader = driver.joined(joins[0]).leader
        follower = next(member_id for member_id in ids if member_id != leader)
        sync = driver.sync(1, follower)

        driver.leave((follower, None))

        assert driver.synced(sync).error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_the_rebalance_completes_without_a_member_that_leaves(self, driver):
        leader, follower = driver.stable(2)
        join = driver.join(leader)

        driver.leave((follower, None))

        assert driver.joined(join).generation_id == 2

    def test_a_leave_of_an_unknown_group_returns_unknown_member_id(self, driver):
        assert driver.leave(("a", None), ("b", None)) == (ErrorCode.UNKNOWN_MEMBER_ID,) * 2


def test_a_description_shows_metadata_and_assignments_only_in_a_stable_group(driver):
    leader, _ = driver.stable(2)
    stable = driver.rules.classic.describe("orders")
    assert [member.assignment for member in stable.members] == [member.member_id.encode() for member in stable.members]
    assert stable.protocol_name == "range"

    driver.join(leader)

    preparing = driver.rules.classic.describe("orders")
    assert preparing.state == "PreparingRebalance"
    assert {(member.metadata, member.assignment) for member in preparing.members} == {(b"", b"")}
    assert driver.rules.classic.describe("elsewhere") is None
