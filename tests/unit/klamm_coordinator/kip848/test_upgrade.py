"""Tests the online upgrade of a classic group with members to a consumer group (KIP-848)."""

from __future__ import annotations

import pytest

from klamm.errors import ErrorCode
from klamm_coordinator.classic.messages import LeaveGroup, Leaver
from klamm_coordinator.classic.subscription import encode_assignment
from klamm_coordinator.records.consumer_group_schemas import MemberKey
from klamm_coordinator.records.schemas import GroupMetadataKey
from klamm_coordinator.runtime.log_write import TxnProducer
from tests.unit.klamm_coordinator.conftest import GROUP, SESSION_MS

T = {("t", number) for number in range(4)}


@pytest.fixture
def upgraded(driver):
    """Returns a driver, two classic members, and a consumer member that made their group a consumer group."""
    driver.topics_are(t=4)
    a, b = driver.classic_consumer(), driver.classic_consumer()
    driver.classic_group(a, b)
    c = driver.consumer("c")
    assert c.heartbeat().error is ErrorCode.NONE
    return driver, a, b, c


def test_all_members_share_the_partitions_of_one_consumer_group(upgraded):
    driver, a, b, c = upgraded
    assert c.owned == set(), "the classic members still have all partitions"

    for _ in range(3):
        assert {a.act(), b.act()} == {ErrorCode.NONE}
        c.heartbeat()

    assert a.owned | b.owned | c.owned == T
    assert len(a.owned) + len(b.owned) + len(c.owned) == 4
    assert all((a.owned, b.owned, c.owned))
    assert driver.rules.consumers.describe(GROUP).state == "Stable"
    assert driver.replayed() == driver.rules.state


def test_the_records_of_the_classic_group_are_deleted_in_the_same_write(driver):
    driver.topics_are(t=4)
    a = driver.classic_consumer()
    driver.classic_group(a)
    driver.auto_ack = False

    driver.consumer_heartbeat("c", 0, topics=("t",), owned=frozenset(), rebalance_timeout_ms=1)

    (write,) = driver.unsent
    assert (write.records[0].key, write.records[0].value) == (GroupMetadataKey(GROUP), None)
    members = {record.key.member_id: record.value for record in write.records if isinstance(record.key, MemberKey)}
    assert members[a.member_id].classic.session_timeout_ms == SESSION_MS
    assert [name for name, _ in members[a.member_id].classic.protocols] == ["range"]
    assert members["c"].classic is None


def test_members_keep_committing_at_their_generation_until_they_join_again(upgraded):
    driver, a, _, _ = upgraded

    committed = driver.commit(7, generation_id=a.generation_id, member_id=a.member_id)
    stale = driver.commit(8, generation_id=a.generation_id - 1, member_id=a.member_id)
    producer = TxnProducer(1, 0)
    in_transaction = driver.txn_commit(9, producer, generation_id=a.generation_id, member_id=a.member_id)
    stale_in_transaction = driver.txn_commit(9, producer, generation_id=9, member_id=a.member_id)

    assert driver.replies[committed].errors == (ErrorCode.NONE,)
    assert driver.replies[stale].errors == (ErrorCode.ILLEGAL_GENERATION,)
    assert driver.replies[in_transaction].errors == (ErrorCode.NONE,)
    assert driver.replies[stale_in_transaction].errors == (ErrorCode.ILLEGAL_GENERATION,)


def test_requests_that_wait_in_a_rebalance_are_answered_so_that_members_join_again(driver):
    driver.topics_are(t=4)
    a, b = driver.classic_consumer(), driver.classic_consumer()
    driver.classic_group(a, b)
    a.send_join()  # the leader begins a rebalance, which waits for b

    driver.consumer("c").heartbeat()

    assert a.joined().error is ErrorCode.REBALANCE_IN_PROGRESS
    assert a.rejoin() is ErrorCode.NONE


def test_an_assignment_that_is_being_stored_reaches_no_member(driver):
    driver.topics_are(t=4)
    a, b = driver.classic_consumer(), driver.classic_consumer()
    driver.classic_group(a, b)
    for member in (a, b):
        member.send_join()
    assert {member.joined().error for member in (a, b)} == {ErrorCode.NONE}
    driver.auto_ack = False
    a.send_sync({a.member_id: encode_assignment({"t": range(4)}, 1)})

    upgrade = driver.consumer_heartbeat("c", 0, topics=("t",), owned=frozenset(), rebalance_timeout_ms=1)
    b.send_sync()
    assert a.synced() is ErrorCode.REBALANCE_IN_PROGRESS
    while driver.unsent:
        driver.ack()

    assert driver.replies[upgrade].error is ErrorCode.NONE
    assert b.synced() is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.replayed() == driver.rules.state


@pytest.mark.parametrize("is_stored", [True, False])
def test_requests_during_the_write_are_answered_after_it(driver, is_stored):
    driver.topics_are(t=4)
    a, b = driver.classic_consumer(), driver.classic_consumer()
    driver.classic_group(a, b)
    driver.auto_ack = False
    upgrade = driver.consumer_heartbeat("c", 0, topics=("t",), owned=frozenset(), rebalance_timeout_ms=1)
    assert a.heartbeat() is ErrorCode.NONE
    a.send_sync()
    b.send_join()
    leaver = Leaver(member_id=a.member_id, instance_id=None, reason="")
    left = driver.ask(LeaveGroup(reply_id=0, group_id=GROUP, leavers=(leaver,)))

    driver.auto_ack = True
    if is_stored:
        driver.ack()
    else:
        driver.nack(ErrorCode.NOT_ENOUGH_REPLICAS)
    while driver.unsent:
        driver.ack()

    assert driver.replies[left].members == (ErrorCode.NONE,)
    if is_stored:
        assert driver.replies[upgrade].error is ErrorCode.NONE
        assert b.joined().error is ErrorCode.NONE
        assert set(driver.rules.state.consumer_groups[GROUP].members) == {b.member_id, "c"}
    else:
        assert driver.replies[upgrade].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert list(driver.rules.classic.groups[GROUP].members) == [b.member_id]
    assert driver.replayed() == driver.rules.state


def test_sessions_of_classic_members_go_on_while_a_slow_write_converts_them(driver):
    driver.topics_are(t=4)
    a = driver.classic_consumer()
    driver.classic_group(a)
    driver.auto_ack = False
    driver.consumer_heartbeat("c", 0, topics=("t",), owned=frozenset(), rebalance_timeout_ms=1)

    driver.advance(SESSION_MS + 1)
    driver.auto_ack = True
    driver.ack()

    assert a.member_id in driver.rules.state.consumer_groups[GROUP].members


def test_a_new_coordinator_continues_the_upgrade(upgraded):
    driver, a, b, c = upgraded

    driver.crash()
    for _ in range(3):
        assert {a.act(), b.act()} == {ErrorCode.NONE}
        c.heartbeat()

    assert a.owned | b.owned | c.owned == T
    driver.advance(SESSION_MS + 1)
    assert set(driver.rules.state.consumer_groups[GROUP].members) == {"c"}


def test_a_static_member_changes_its_protocol_and_keeps_its_partitions(driver):
    driver.topics_are(t=4)
    a, b = driver.classic_consumer(instance_id="i"), driver.classic_consumer(instance_id="j")
    driver.classic_group(a, b)
    former = a.owned

    new = driver.consumer("new", instance_id="i")
    new.heartbeat()

    assert new.owned == former
    assert a.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert b.act() is ErrorCode.NONE
    assert new.owned | b.owned == T
    assert driver.replayed() == driver.rules.state


def test_a_fenced_member_of_a_group_that_was_downgraded_since_joins_again(upgraded):
    driver, a, b, c = upgraded
    while driver.rules.consumers.get(GROUP) is not None:
        assert {a.act(), b.act()} == {ErrorCode.NONE}
        driver.advance(SESSION_MS - 1)  # c sends nothing, and is fenced at last

    assert c.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID


class TestRefusals:
    @pytest.mark.parametrize("policy", ["disabled", "downgrade"])
    def test_by_the_policy(self, make_driver, policy):
        driver = make_driver(consumer_migration_policy=policy)
        driver.topics_are(t=4)
        driver.classic_group(driver.classic_consumer())

        reply = driver.consumer("c").heartbeat()

        assert reply.error is ErrorCode.GROUP_ID_NOT_FOUND
        assert "the online upgrade is disabled (group.consumer.migration.policy)" in reply.message
        assert driver.state() == "Stable"

    def test_of_a_group_that_is_too_large(self, make_driver):
        driver = make_driver(consumer_size_max=1)
        driver.topics_are(t=4)
        driver.classic_group(driver.classic_consumer(), driver.classic_consumer())

        reply = driver.consumer("c").heartbeat()

        assert reply.error is ErrorCode.GROUP_ID_NOT_FOUND
        assert "it has 2 members, expected at most 1 (group.consumer.max.size)" in reply.message

    def test_of_a_member_for_which_there_is_no_room(self, make_driver):
        driver = make_driver(consumer_size_max=1)
        driver.topics_are(t=4)
        driver.classic_group(driver.classic_consumer())

        assert driver.consumer("c").heartbeat().error is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert driver.state() == "Stable"
        assert not driver.unsent

    def test_of_another_protocol_type(self, driver):
        driver.stable(protocol_type="connect")

        reply = driver.consumer("c").heartbeat()

        assert reply.error is ErrorCode.GROUP_ID_NOT_FOUND
        assert "the group does not use the consumer embedded protocol" in reply.message

    def test_of_assignments_that_do_not_parse(self, driver):
        driver.stable()

        reply = driver.consumer("c").heartbeat()

        assert reply.error is ErrorCode.GROUP_ID_NOT_FOUND
        assert "the embedded consumer protocol is malformed" in reply.message

    def test_of_assignments_with_user_data(self, driver):
        driver.topics_are(t=1)
        a = driver.classic_consumer()
        driver.classic_group(a)
        a.send_join()
        a.joined()
        user_data = encode_assignment({"t": (0,)}, 1)[:-4] + b"\0\0\0\1x"
        a.send_sync({a.member_id: user_data})

        reply = driver.consumer("c").heartbeat()

        assert reply.error is ErrorCode.GROUP_ID_NOT_FOUND
        assert "an unsupported custom assignor is in use" in reply.message


def test_a_partition_that_a_leader_gave_to_two_members_keeps_one_owner(driver):
    driver.topics_are(t=1)
    a, b = driver.classic_consumer(), driver.classic_consumer()
    driver.classic_group(a, b)
    for member in (a, b):
        member.send_join()
    for member in (a, b):
        member.joined()
    everything = encode_assignment({"t": (0,)}, 1)
    a.send_sync({a.member_id: everything, b.member_id: everything})

    assert driver.consumer("c").heartbeat().error is ErrorCode.NONE
    assert list(driver.rules.state.consumer_groups[GROUP].owners.values()) == [a.member_id]


def test_a_group_in_its_first_join_phase_is_upgraded(driver):
    driver.topics_are(t=2)
    a, c = driver.classic_consumer(), driver.consumer("c")
    a.send_join()

    c.heartbeat()

    assert a.joined().error is ErrorCode.REBALANCE_IN_PROGRESS
    assert a.rejoin() is ErrorCode.NONE
    driver.settle(c)
    assert a.act() is ErrorCode.NONE
    assert {len(a.owned), len(c.owned)} == {1}


def test_a_cooperative_member_keeps_its_partitions_when_the_group_goes_up_again_before_it_has_rebalanced(driver):
    driver.topics_are(t=4)
    a = driver.classic_consumer(is_cooperative=True)
    driver.classic_group(a)
    c = driver.consumer("c")
    c.heartbeat()
    c.leave()

    again = driver.consumer("again")
    again.heartbeat()
    again.heartbeat()

    assert a.owned == T
    assert again.owned == set()
    assert driver.rules.state.consumer_groups[GROUP].current(a.member_id).owned
