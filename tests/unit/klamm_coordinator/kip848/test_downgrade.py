"""Tests the online downgrade of a consumer group to a classic group with the members that remain (KIP-848)."""

from __future__ import annotations

import pytest

from klamm.errors import ErrorCode
from klamm_coordinator.records.consumer_group_schemas import CurrentKey, GroupEpochKey, MemberKey
from klamm_coordinator.records.schemas import GroupMetadataKey
from tests.unit.klamm_coordinator.conftest import GROUP, SESSION_MS

T = {("t", number) for number in range(4)}


def mixed(driver, **kwargs):
    """Returns two classic members and a consumer member, which share the partitions of a consumer group."""
    driver.topics_are(t=4)
    a, b = driver.classic_consumer(), driver.classic_consumer()
    driver.classic_group(a, b)
    c = driver.consumer("c", **kwargs)
    c.heartbeat()
    for _ in range(3):
        assert {a.act(), b.act()} == {ErrorCode.NONE}
        c.heartbeat()
    assert a.owned | b.owned | c.owned == T
    return a, b, c


def rebalance(driver, *members):
    """Lets the members of a classic group join and sync. The first one to be the leader assigns everything."""
    for member in members:
        member.send_join()
    replies = [member.joined() for member in members]
    leader = next(member for member, reply in zip(members, replies, strict=True) if reply.leader == reply.member_id)
    assert {reply.error for reply in replies} == {ErrorCode.NONE}
    return leader


def test_the_group_becomes_classic_and_rebalances_when_the_last_consumer_member_leaves(driver):
    a, b, c = mixed(driver)
    epoch = driver.rules.state.consumer_groups[GROUP].epoch

    assert c.leave() is ErrorCode.NONE

    assert driver.rules.consumers.get(GROUP) is None
    assert driver.state() == "PreparingRebalance"
    assert driver.rules.classic.groups[GROUP].generation_id == epoch
    assert {a.heartbeat(), b.heartbeat()} == {ErrorCode.REBALANCE_IN_PROGRESS}
    rebalance(driver, a, b)
    assert {a.generation_id, b.generation_id} == {epoch + 1}
    assert driver.replayed() == driver.rules.state


def test_the_records_of_the_consumer_group_are_deleted_in_the_same_write(driver):
    a, b, _c = mixed(driver)
    driver.auto_ack = False

    driver.consumer_heartbeat("c", -1)

    (write,) = driver.unsent
    *tombstones, classic = write.records
    assert all(record.value is None for record in tombstones)
    keys = [record.key for record in tombstones]
    members = {a.member_id, b.member_id, "c"}
    assert {key.member_id for key in keys if isinstance(key, CurrentKey)} == members
    assert {key.member_id for key in keys if isinstance(key, MemberKey)} == members
    assert keys[-1] == GroupEpochKey(GROUP)
    assert classic.key == GroupMetadataKey(GROUP)
    assert (classic.value.protocol_type, classic.value.protocol_name) == ("consumer", "range")
    assert {member.member_id for member in classic.value.members} == {a.member_id, b.member_id}
    assert {member.session_timeout_ms for member in classic.value.members} == {SESSION_MS}


def test_the_group_stays_as_it_is_when_the_write_fails(driver):
    a, b, _c = mixed(driver)
    driver.auto_ack = False
    left = driver.consumer_heartbeat("c", -1)
    a.send_join()

    driver.nack(ErrorCode.NOT_ENOUGH_REPLICAS)

    assert driver.replies[left].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert a.joined().error is ErrorCode.NONE
    assert set(driver.rules.state.consumer_groups[GROUP].members) == {a.member_id, b.member_id, "c"}


def test_a_join_that_waits_for_the_write_joins_the_classic_group(driver):
    a, b, _ = mixed(driver)
    driver.auto_ack = False
    driver.consumer_heartbeat("c", -1)
    a.send_join()

    driver.ack()
    b.send_join()

    assert {a.joined().error, b.joined().error} == {ErrorCode.NONE}


def test_a_fenced_member_causes_the_downgrade(driver):
    a, b, _ = mixed(driver)

    while driver.rules.consumers.get(GROUP) is not None:
        assert {a.act(), b.act()} == {ErrorCode.NONE}
        driver.advance(SESSION_MS - 1)

    assert driver.state() == "PreparingRebalance"
    rebalance(driver, a, b)


def test_an_administrator_who_removes_the_last_consumer_member_causes_the_downgrade(driver):
    a, b, _ = mixed(driver)

    assert driver.leave(("c", None)) == (ErrorCode.NONE,)

    assert driver.state() == "PreparingRebalance"
    rebalance(driver, a, b)


def test_a_new_coordinator_continues_the_downgrade(driver):
    a, b, c = mixed(driver)
    c.leave()

    driver.crash()

    assert driver.state() == "PreparingRebalance", "the partitions of c have no owner yet"
    assert {a.heartbeat(), b.heartbeat()} == {ErrorCode.REBALANCE_IN_PROGRESS}
    rebalance(driver, a, b)


def test_a_new_coordinator_loads_the_classic_group_after_its_rebalance_as_stable(driver):
    a, b, c = mixed(driver)
    c.leave()
    leader = rebalance(driver, a, b)
    leader.send_sync({a.member_id: b"", b.member_id: b""})

    driver.crash()

    assert driver.state() == "Stable"


def test_a_static_member_changes_its_protocol_back(driver):
    driver.topics_are(t=4)
    a, b = driver.classic_consumer(instance_id="i"), driver.classic_consumer(instance_id="j")
    driver.classic_group(a, b)
    new = driver.consumer("new", instance_id="i")
    driver.settle(new)
    assert b.act() is ErrorCode.NONE

    again = driver.classic_consumer(instance_id="i")
    again.send_join()
    b.send_join()

    assert {again.joined().error, b.joined().error} == {ErrorCode.NONE}
    assert new.heartbeat().error in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID)
    group = driver.rules.classic.groups[GROUP]
    assert group.static_members == {"i": again.member_id, "j": b.member_id}
    assert driver.replayed() == driver.rules.state


def test_a_group_goes_to_the_consumer_protocol_and_back_several_times(driver):
    a, b, c = mixed(driver)
    for _ in range(3):
        c.leave()
        leader = rebalance(driver, a, b)
        leader.send_sync({a.member_id: b"", b.member_id: b""})
        c = driver.consumer("c")
        assert c.heartbeat().error is ErrorCode.NONE
        for _ in range(4):
            a.act(), b.act(), c.heartbeat()
        assert a.owned | b.owned | c.owned == T


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_without_the_policy_the_group_stays_a_consumer_group(make_driver, policy):
    driver = make_driver()
    a, b, c = mixed(driver)
    object.__setattr__(driver.settings, "consumer_migration_policy", policy)

    c.leave()

    for _ in range(3):
        assert {a.act(), b.act()} == {ErrorCode.NONE}
    assert a.owned | b.owned == T
    assert driver.rules.consumers.describe(GROUP).state == "Stable"


def test_a_group_that_is_too_large_stays_a_consumer_group(make_driver):
    driver = make_driver(group_size_max=2)
    a, b, c = mixed(driver)
    object.__setattr__(driver.settings, "group_size_max", 1)

    c.leave()

    assert driver.rules.consumers.get(GROUP) is not None
    assert {a.act(), b.act()} == {ErrorCode.NONE}


def test_an_empty_group_stays_a_consumer_group(driver):
    c = driver.consumer("c")
    c.heartbeat()

    c.leave()

    assert driver.rules.consumers.get(GROUP).is_empty
