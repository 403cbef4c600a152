"""Tests SyncGroup: members get their assignments after they are stored."""

from __future__ import annotations

import pytest

from klamm.errors import ErrorCode


@pytest.fixture
def pair(driver):
    """Returns a driver with two members in CompletingRebalance, the leader first."""
    ids = [driver.new_member_id() for _ in range(2)]
    joins = [driver.join(member_id) for member_id in ids]
    driver.advance(9_000)
    leader = driver.joined(joins[0]).leader
    return driver, leader, next(member_id for member_id in ids if member_id != leader)


def test_a_sync_of_a_follower_waits_for_the_sync_of_the_leader(pair):
    driver, leader, follower = pair
    sync = driver.sync(1, follower)
    assert sync not in driver.replies

    driver.sync(1, leader, {leader: b"L", follower: b"F"})

    reply = driver.synced(sync)
    assert (reply.assignment, reply.protocol_type, reply.protocol_name) == (b"F", "consumer", "range")
    assert driver.state() == "Stable"


def test_syncs_are_answered_only_when_the_assignments_are_stored(pair):
    driver, leader, follower = pair
    driver.auto_ack = False
    syncs = [driver.sync(1, follower), driver.sync(1, leader, {follower: b"F"})]
    assert not driver.replies.keys() & set(syncs)
    assert driver.state() == "CompletingRebalance"

    driver.ack()

    assert [driver.synced(sync).assignment for sync in syncs] == [b"F", b""]


def test_assignments_that_cannot_be_stored_restart_the_rebalance(pair):
    driver, leader, follower = pair
    driver.auto_ack = False
    syncs = [driver.sync(1, follower), driver.sync(1, leader, {follower: b"F"})]

    driver.nack(ErrorCode.NOT_ENOUGH_REPLICAS)

    assert {driver.synced(sync).error for sync in syncs} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert driver.state() == "PreparingRebalance"


def test_assignments_that_are_not_stored_in_time_restart_the_rebalance(pair):
    driver, leader, follower = pair
    driver.auto_ack = False
    syncs = [driver.sync(1, follower), driver.sync(1, leader, {follower: b"F"})]

    driver.advance(5_000)

    assert {driver.synced(sync).error for sync in syncs} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    driver.ack()  # stored after all, but no group may be Stable in a generation without members
    assert driver.state() == "PreparingRebalance"
    assert driver.rules.state.groups["orders"].generation_id == 1


def test_an_assignment_stored_for_a_former_generation_changes_nothing(pair):
    driver, leader, follower = pair
    driver.auto_ack = False
    lost = driver.sync(1, leader, {leader: b"old"})
    driver.join(follower, protocols=(("range", b"changed"),))
    assert driver.synced(lost).error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(leader)

    driver.ack()

    assert driver.state() == "CompletingRebalance"
    assert driver.rules.classic.groups["orders"].generation_id == 2


def test_a_sync_in_a_stable_group_returns_the_assignment_again(driver):
    _, follower = driver.stable(2)

    assert driver.synced(driver.sync(1, follower)).assignment == follower.encode()


def test_assignments_to_unknown_members_are_dropped_and_members_without_one_get_nothing(pair):
    driver, leader, follower = pair
    sync = driver.sync(1, follower)

    driver.sync(1, leader, {"stranger": b"S", leader: b"L"})

    assert driver.synced(sync).assignment == b""
    assert {m.member_id for m in driver.rules.state.groups["orders"].members} == {leader, follower}


def test_kafka_12890_members_that_never_sync_are_removed(pair):
    driver, leader, follower = pair
    driver.sync(1, leader, {leader: b"L"})
    for _ in range(12):
        driver.advance(5_000)
        driver.heartbeat(1, follower)
        driver.heartbeat(1, leader)

    assert list(driver.rules.classic.groups["orders"].members) == [leader]
    assert driver.state() == "PreparingRebalance"


@pytest.mark.parametrize(
    ("kwargs", "error"),
    [
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_id": "elsewhere"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_sync_of_an_unknown_member_or_another_generation_is_refused(pair, kwargs, error):
    driver, _, follower = pair
    wanted = {"generation_id": 1, "member_id": follower} | kwargs

    assert driver.synced(driver.sync(**wanted)).error is error
    assert driver.state() == "CompletingRebalance"


def test_a_sync_while_members_rejoin_returns_rebalance_in_progress(driver):
    leader, follower = driver.stable(2)
    driver.join(leader)

    assert driver.synced(driver.sync(1, follower)).error is ErrorCode.REBALANCE_IN_PROGRESS
