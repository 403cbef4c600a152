"""Tests members of the classic protocol in a consumer group (KIP-848)."""

from __future__ import annotations

import pytest

from klamm.errors import ErrorCode
from tests.unit.klamm_coordinator.conftest import GROUP, REBALANCE_MS, SESSION_MS, subscription

T = {("t", number) for number in range(4)}


@pytest.fixture
def group(driver):
    """Returns a driver, and a member of the consumer protocol that has all partitions."""
    driver.topics_are(t=4)
    member = driver.consumer("c")
    driver.settle(member)
    assert member.owned == T
    return driver, member


def test_a_new_member_gets_partitions_when_others_have_revoked_them(group):
    driver, c = group
    a = driver.classic_consumer()

    assert a.rejoin() is ErrorCode.NONE
    assert a.owned == set()
    assert a.heartbeat() is ErrorCode.NONE, "it has to wait"
    driver.settle(c)
    assert a.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert a.act() is ErrorCode.NONE

    assert (len(a.owned), len(c.owned)) == (2, 2)
    assert a.owned | c.owned == T


def test_the_answer_names_no_leader(group):
    driver, _ = group
    a = driver.classic_consumer()
    a.send_join()

    reply = a.joined()

    assert (reply.leader, reply.members, reply.skip_assignment) == ("", (), False)
    assert (reply.protocol_type, reply.protocol_name) == ("consumer", "range")
    assert reply.generation_id == driver.rules.state.consumer_groups[GROUP].current(a.member_id).member_epoch


def test_a_cooperative_member_keeps_what_it_need_not_revoke(driver):
    driver.topics_are(t=4)
    a = driver.classic_consumer(is_cooperative=True)
    driver.classic_group(a)
    before = set(a.owned)
    c = driver.consumer("c")
    c.heartbeat()

    assert a.act() is ErrorCode.NONE
    assert len(a.owned) == 2
    assert a.owned < before
    c.heartbeat()
    assert c.owned == set(), "the member has not told yet that it gave up the others"
    assert a.act() is ErrorCode.NONE
    c.heartbeat()

    assert a.owned | c.owned == T
    assert not a.owned & c.owned


def test_a_member_that_was_fenced_must_give_up_its_partitions_before_it_joins_again(driver):
    driver.topics_are(t=4)
    a = driver.classic_consumer(is_cooperative=True)
    driver.classic_group(a)
    c = driver.consumer("c")
    c.heartbeat()
    for _ in range(3):
        driver.advance(SESSION_MS)
        c.heartbeat()
    assert c.owned == T

    assert a.owned
    assert a.join() is ErrorCode.UNKNOWN_MEMBER_ID
    a.owned = set()
    assert a.join() is ErrorCode.NONE


def test_a_member_that_leaves_gives_up_its_partitions(group):
    driver, c = group
    a = driver.classic_consumer()
    a.rejoin()
    driver.settle(c)
    a.act()

    assert a.leave() is ErrorCode.NONE
    driver.settle(c)

    assert c.owned == T


class TestDeadlines:
    def test_the_session(self, group):
        driver, _ = group
        a = driver.classic_consumer()
        a.rejoin()
        driver.advance(SESSION_MS - 1)
        a.heartbeat()
        driver.advance(SESSION_MS - 1)
        assert a.member_id in driver.rules.state.consumer_groups[GROUP].members

        driver.advance(1)

        assert a.member_id not in driver.rules.state.consumer_groups[GROUP].members

    def test_to_join_again(self, group):
        driver, c = group
        a = driver.classic_consumer()
        a.rejoin()
        driver.settle(c)
        heartbeats = 0
        while a.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS:
            driver.advance(SESSION_MS // 2)
            c.heartbeat()
            heartbeats += 1

        assert heartbeats == REBALANCE_MS // (SESSION_MS // 2)
        assert any("reason=join-timeout" in line for line in driver.notes)

    def test_to_ask_for_the_assignment(self, group):
        driver, c = group
        a = driver.classic_consumer()
        assert a.join() is ErrorCode.NONE
        for _ in range(REBALANCE_MS // 5_000):
            assert a.heartbeat() in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
            driver.advance(5_000)
            c.heartbeat()

        assert a.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
        assert any("-timeout" in line for line in driver.notes)

    def test_are_over_when_the_member_joins_and_syncs(self, group):
        driver, c = group
        a = driver.classic_consumer()
        a.rejoin()
        driver.settle(c)
        assert a.act() is ErrorCode.NONE

        for _ in range(3 * REBALANCE_MS // 5_000):
            driver.advance(5_000)
            c.heartbeat()
            assert a.heartbeat() is ErrorCode.NONE


class TestRefusals:
    def test_of_a_protocol_that_other_classic_members_do_not_support(self, group):
        driver, _ = group
        driver.classic_consumer(protocol="range").rejoin()

        assert driver.classic_consumer(protocol="roundrobin").join() is ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_of_another_protocol_type(self, group):
        driver, _ = group
        joined = driver.join(protocol_type="connect")

        assert driver.joined(joined).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_of_metadata_that_does_not_parse(self, group):
        driver, _ = group
        joined = driver.join("m", protocols=(("range", b"x"),))

        assert driver.joined(joined).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert driver.rules.state.consumer_groups[GROUP].members.keys() == {"c"}

    def test_of_a_member_for_which_there_is_no_room(self, make_driver):
        driver = make_driver(consumer_size_max=1)
        driver.topics_are(t=4)
        driver.consumer("c").heartbeat()

        assert driver.classic_consumer().join() is ErrorCode.GROUP_MAX_SIZE_REACHED

    def test_of_a_member_of_the_consumer_protocol(self, group):
        driver, c = group

        assert driver.heartbeat(c.epoch, "c") is ErrorCode.UNKNOWN_MEMBER_ID
        assert driver.synced(driver.sync(c.epoch, "c")).error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_of_an_unknown_member_or_instance(self, group):
        driver, _ = group
        a = driver.classic_consumer(instance_id="i")
        a.rejoin()

        assert driver.heartbeat(1, "nobody") is ErrorCode.UNKNOWN_MEMBER_ID
        assert driver.heartbeat(a.generation_id, a.member_id, instance_id="j") is ErrorCode.UNKNOWN_MEMBER_ID
        assert driver.heartbeat(a.generation_id, "nobody", instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
        joined = driver.join("nobody", instance_id="i")
        assert driver.joined(joined).error is ErrorCode.FENCED_INSTANCE_ID

    def test_of_another_generation(self, group):
        driver, _ = group
        a = driver.classic_consumer()
        a.rejoin()

        assert driver.heartbeat(a.generation_id - 1, a.member_id) is ErrorCode.ILLEGAL_GENERATION
        assert driver.synced(driver.sync(9, a.member_id)).error is ErrorCode.ILLEGAL_GENERATION

    def test_of_a_sync_with_another_protocol(self, group):
        driver, _ = group
        a = driver.classic_consumer()
        a.join()

        for kwargs in ({"protocol_name": "roundrobin"}, {"protocol_type": "connect"}):
            synced = driver.sync(a.generation_id, a.member_id, **kwargs)
            assert driver.synced(synced).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_of_a_sync_after_the_group_has_changed(self, group):
        driver, _ = group
        a = driver.classic_consumer()
        a.join()
        driver.consumer("d").heartbeat()

        assert a.sync() is ErrorCode.REBALANCE_IN_PROGRESS
        assert a.rejoin() is ErrorCode.NONE


def test_a_member_that_changes_its_subscription_gets_other_partitions(group):
    driver, c = group
    driver.topics_are(t=4, u=1)
    a = driver.classic_consumer()
    a.rejoin()
    a.topics = ("u",)

    a.rejoin()
    driver.settle(c)

    assert a.owned == {("u", 0)}
    assert c.owned == T


def test_a_client_of_an_old_version_joins_without_an_id(group):
    driver, _ = group
    joined = driver.join(joins_without_id=True, protocols=(("range", subscription("t")),))

    reply = driver.joined(joined)

    assert reply.error is ErrorCode.NONE
    assert reply.member_id in driver.rules.state.consumer_groups[GROUP].members
