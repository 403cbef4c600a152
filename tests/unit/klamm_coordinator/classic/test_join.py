"""Tests JoinGroup: entering a group and its generations, rule by rule."""

from __future__ import annotations

import pytest

from klamm.errors import ErrorCode

RANGE = ("range", b"range-metadata")
STICKY = ("sticky", b"sticky-metadata")


def test_kip_394_a_first_join_only_gets_a_member_id(driver):
    member_id = driver.new_member_id(client_id="billing")

    assert member_id.startswith("billing-")
    assert driver.state() == "Empty"
    assert driver.rules.classic.groups["orders"].members == {}


def test_kip_394_an_unused_member_id_expires_and_its_group_is_removed(driver):
    member_id = driver.new_member_id(session_timeout_ms=6_000)

    driver.advance(6_000)

    assert "orders" not in driver.rules.classic.groups
    assert driver.joined(driver.join(member_id)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_kip_394_the_number_of_pending_member_ids_is_bounded(make_driver):
    driver = make_driver(pending_members_max=2)
    driver.new_member_id()
    driver.new_member_id()

    assert driver.joined(driver.join()).error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_kip_394_an_old_client_joins_immediately_without_a_member_id(driver):
    first, second = driver.join(joins_without_id=True, client_id="old"), driver.join(joins_without_id=True)
    driver.advance(9_000)

    replies = [driver.joined(first), driver.joined(second)]
    assert [reply.error for reply in replies] == [ErrorCode.NONE] * 2
    assert {member.member_id for member in replies[0].members} == {reply.member_id for reply in replies}
    assert replies[0].member_id.startswith("old-")


def test_kip_800_the_reasons_of_joins_and_leaves_are_logged_once(driver):
    (member,) = driver.stable(1)
    driver.join(driver.new_member_id(), reason="scaled out")
    driver.join(member, reason="the other came")
    driver.leave((member, None), reason="scaled in")

    for reason in ("scaled out", "scaled in"):
        assert sum(reason in note for note in driver.notes) == 1, reason


def test_kip_134_the_first_rebalance_waits_for_more_members(driver):
    first = driver.join(driver.new_member_id())
    driver.advance(2_999)
    assert first not in driver.replies

    second = driver.join(driver.new_member_id())
    driver.advance(1)  # the second member came during the delay, which was extended
    assert first not in driver.replies

    driver.advance(3_000)
    assert driver.joined(first).generation_id == driver.joined(second).generation_id == 1
    assert len(driver.joined(first).members) == 2
    assert driver.joined(second).members == ()


def test_kip_134_the_initial_delay_never_exceeds_the_rebalance_timeout(driver):
    first = driver.join(driver.new_member_id(), rebalance_timeout_ms=7_000)
    for _ in range(3):
        driver.advance(2_400)
        driver.join(driver.new_member_id(), rebalance_timeout_ms=7_000)

    assert driver.joined(first).generation_id == 1


def test_without_an_initial_delay_the_first_member_joins_immediately(make_driver):
    driver = make_driver(initial_rebalance_delay_ms=0)

    reply = driver.joined(driver.join(driver.new_member_id()))

    assert reply.error is ErrorCode.NONE
    assert reply.leader == reply.member_id


def test_the_members_elect_a_protocol_that_all_of_them_support(driver):
    both = [RANGE, STICKY]
    ids = [driver.new_member_id() for _ in range(3)]
    joins = [
        driver.join(ids[0], protocols=(RANGE, STICKY, ("own", b""))),
        driver.join(ids[1], protocols=tuple(reversed(both))),
        driver.join(ids[2], protocols=tuple(reversed(both))),
    ]
    driver.advance(20_000)

    assert {driver.joined(join).protocol_name for join in joins} == {"sticky"}
    assert {member.metadata for member in driver.joined(joins[0]).members} == {b"sticky-metadata"}


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", (RANGE,)), ("consumer", (("unheard-of", b""),)), ("consumer", ())],
)
def test_a_member_that_shares_no_protocol_is_refused(driver, protocol_type, protocols):
    driver.stable(2, protocols=(RANGE,))

    reply = driver.joined(driver.join(protocol_type=protocol_type, protocols=protocols))

    assert reply.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.state() == "Stable"


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", (RANGE,)), ("consumer", ())])
def test_a_first_join_without_a_protocol_type_or_protocol_is_refused(driver, protocol_type, protocols):
    reply = driver.joined(driver.join(protocol_type=protocol_type, protocols=protocols))

    assert reply.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.rules.classic.groups == {}


def test_a_new_member_makes_all_members_rejoin(driver):
    leader, follower = driver.stable(2)

    newcomer = driver.join(driver.new_member_id())

    assert driver.state() == "PreparingRebalance"
    assert driver.heartbeat(1, follower) is ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(leader)
    last = driver.join(follower)
    assert driver.joined(newcomer).generation_id == driver.joined(last).generation_id == 2
    assert driver.joined(newcomer).leader == leader


def test_a_member_that_does_not_rejoin_within_the_rebalance_timeout_is_removed(driver):
    leader, lazy = driver.stable(2, rebalance_timeout_ms=20_000, session_timeout_ms=30_000)
    driver.join(leader, rebalance_timeout_ms=20_000, session_timeout_ms=30_000)

    driver.advance(20_000)

    assert list(driver.rules.classic.groups["orders"].members) == [leader]
    assert driver.heartbeat(2, lazy) is ErrorCode.UNKNOWN_MEMBER_ID


def test_when_the_leader_does_not_rejoin_another_member_leads(driver):
    leader, follower = driver.stable(2, session_timeout_ms=100_000)
    newcomer = driver.join(driver.new_member_id(session_timeout_ms=100_000), session_timeout_ms=100_000)
    driver.join(follower, session_timeout_ms=100_000)

    driver.advance(60_000)

    assert driver.joined(newcomer).leader == follower
    assert leader not in driver.rules.classic.groups["orders"].members


def test_a_follower_that_rejoins_unchanged_gets_the_current_generation(driver):
    _, follower = driver.stable(2)

    reply = driver.joined(driver.join(follower))

    assert (reply.error, reply.generation_id) == (ErrorCode.NONE, 1)
    assert reply.members == ()
    assert driver.state() == "Stable"


def test_a_follower_that_rejoins_with_other_metadata_starts_a_rebalance(driver):
    _, follower = driver.stable(2)

    driver.join(follower, protocols=(("range", b"other topics"),))

    assert driver.state() == "PreparingRebalance"


def test_a_leader_that_rejoins_starts_a_rebalance_even_unchanged(driver):
    leader, _ = driver.stable(2)

    driver.join(leader)

    assert driver.state() == "PreparingRebalance"


def test_a_repeated_join_gets_the_same_answer_in_completing_rebalance(driver):
    ids = [driver.new_member_id() for _ in range(2)]
    joins = [driver.join(member_id) for member_id in ids]
    driver.advance(9_000)
    leader = driver.joined(joins[0]).leader

    again = driver.joined(driver.join(leader))

    assert again == driver.joined(joins[ids.index(leader)])
    assert driver.state() == "CompletingRebalance"


def test_a_second_join_of_a_member_ends_its_first_join_with_rebalance_in_progress(driver):
    leader, _ = driver.stable(2)
    first = driver.join(leader)

    driver.join(leader)

    assert driver.joined(first).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_new_member_that_waits_longer_than_its_join_timeout_has_to_ask_again(make_driver):
    driver = make_driver(new_member_join_timeout_ms=30_000)
    _, follower = driver.stable(2, session_timeout_ms=300_000, rebalance_timeout_ms=100_000)
    newcomer = driver.join(driver.new_member_id(), rebalance_timeout_ms=100_000)

    driver.advance(30_000)

    assert driver.joined(newcomer).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.joined(newcomer).member_id == ""
    assert follower in driver.rules.classic.groups["orders"].members


class TestGroupMaxSize:
    def test_a_full_group_refuses_newcomers(self, make_driver):
        driver = make_driver(group_size_max=2)
        members = driver.stable(2)

        assert driver.joined(driver.join()).error is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert driver.heartbeat(1, members[1]) is ErrorCode.NONE

    def test_the_last_of_several_members_that_join_a_full_group_are_refused(self, make_driver):
        driver = make_driver(group_size_max=2)
        ids = [driver.new_member_id() for _ in range(3)]
        joins = [driver.join(member_id) for member_id in ids]
        driver.advance(20_000)

        errors = [driver.joined(join).error for join in joins]

        assert errors == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]

    def test_a_loaded_group_above_the_size_limit_rebalances_and_refuses_a_member(self, make_driver):
        driver = make_driver()
        members = driver.stable(3)
        driver.settings = type(driver.settings)(initial_rebalance_delay_ms=0, group_size_max=2)

        driver.crash()

        assert driver.state() == "PreparingRebalance"
        joins = [driver.join(member_id) for member_id in members]
        errors = [driver.joined(join).error for join in joins]
        assert errors.count(ErrorCode.GROUP_MAX_SIZE_REACHED) == 1
        assert len(driver.rules.classic.groups["orders"].members) == 2


def test_a_join_that_exceeds_group_count_max_is_refused(make_driver):
    driver = make_driver(group_count_max=1)
    driver.new_member_id(group_id="one")

    assert driver.joined(driver.join(group_id="two")).error is ErrorCode.GROUP_MAX_SIZE_REACHED


class TestStaticMembers:
    def test_kip_345_a_static_member_joins_without_a_member_id(self, driver):
        join = driver.join(instance_id="worker-1")
        driver.advance(6_000)

        reply = driver.joined(join)

        assert reply.error is ErrorCode.NONE
        assert reply.member_id.startswith("worker-1-")

    def test_kip_345_a_static_member_returns_without_a_rebalance(self, driver):
        driver.stable(1, instances=("worker-1",))
        former = driver.rules.classic.groups["orders"].static_members["worker-1"]

        reply = driver.joined(driver.join(instance_id="worker-1"))

        assert (reply.error, reply.generation_id) == (ErrorCode.NONE, 1)
        assert reply.member_id != former
        assert driver.state() == "Stable"
        assignment = driver.synced(driver.sync(1, reply.member_id, instance_id="worker-1"))
        assert assignment.assignment == former.encode()

    def test_kip_345_the_former_member_id_of_a_static_member_is_fenced(self, driver):
        driver.stable(1, instances=("worker-1",))
        former = driver.rules.classic.groups["orders"].static_members["worker-1"]
        driver.join(instance_id="worker-1")

        fenced = ErrorCode.FENCED_INSTANCE_ID

        assert driver.heartbeat(1, former, instance_id="worker-1") is fenced
        assert driver.synced(driver.sync(1, former, instance_id="worker-1")).error is fenced
        assert driver.joined(driver.join(former, instance_id="worker-1")).error is fenced
        assert driver.leave((former, "worker-1")) == (fenced,)
        commit = driver.commit(1, generation_id=1, member_id=former, instance_id="worker-1")
        assert driver.replies[commit].errors == (fenced,)

    def test_kip_345_a_parked_join_of_the_former_process_is_fenced_at_once(self, driver):
        first = driver.join(instance_id="worker-1")

        second = driver.join(instance_id="worker-1")

        assert driver.joined(first).error is ErrorCode.FENCED_INSTANCE_ID
        driver.advance(6_000)
        assert driver.joined(second).error is ErrorCode.NONE

    def test_kip_345_a_parked_sync_of_the_former_process_is_fenced_at_once(self, driver):
        joins = [driver.join(instance_id="worker-1"), driver.join(instance_id="worker-2")]
        driver.advance(9_000)
        follower = next(driver.joined(j) for j in joins if not driver.joined(j).members)
        instance_id = follower.member_id[: len("worker-1")]
        sync = driver.sync(1, follower.member_id, instance_id=instance_id)

        driver.join(instance_id=instance_id)

        assert driver.synced(sync).error is ErrorCode.FENCED_INSTANCE_ID
        assert driver.state() == "PreparingRebalance"

    def test_kip_814_a_static_leader_that_returns_skips_the_assignment(self, driver):
        driver.stable(0, instances=("worker-1", "worker-2"))
        leader = driver.rules.classic.groups["orders"].leader
        instance_id = driver.rules.classic.groups["orders"].members[leader].instance_id

        reply = driver.joined(driver.join(instance_id=instance_id))

        assert reply.skip_assignment
        assert reply.leader == reply.member_id
        assert len(reply.members) == 2

    def test_kip_345_a_static_member_that_returns_with_another_protocol_causes_a_rebalance(self, driver):
        driver.stable(1, instances=("worker-1",), protocols=(RANGE, STICKY))

        driver.join(instance_id="worker-1", protocols=(STICKY,))

        assert driver.state() == "PreparingRebalance"

    def test_the_return_of_a_static_member_is_answered_only_when_it_is_stored(self, driver):
        driver.stable(1, instances=("worker-1",))
        driver.auto_ack = False

        join = driver.join(instance_id="worker-1")

        assert join not in driver.replies
        driver.ack()
        assert driver.joined(join).error is ErrorCode.NONE

    def test_a_return_that_cannot_be_stored_keeps_the_former_member_id(self, driver):
        driver.stable(1, instances=("worker-1",))
        former = driver.rules.classic.groups["orders"].static_members["worker-1"]
        driver.auto_ack = False
        join = driver.join(instance_id="worker-1")

        driver.nack(ErrorCode.NOT_ENOUGH_REPLICAS)

        assert driver.joined(join).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert driver.heartbeat(1, former, instance_id="worker-1") is ErrorCode.NONE

    def test_a_static_member_that_returns_during_a_rebalance_joins_it(self, driver):
        leader, _ = driver.stable(1, instances=("worker-1",))
        dynamic = next(m for m in driver.rules.classic.groups["orders"].members if not m.startswith("worker"))
        driver.auto_ack = False
        back = driver.join(instance_id="worker-1")
        rejoined = driver.join(dynamic, protocols=(("range", b"changed"),))
        assert driver.joined(rejoined).generation_id == driver.joined(back).generation_id == 2

        driver.ack()

        assert driver.state() == "CompletingRebalance"
        assert leader

    def test_a_static_member_that_does_not_rejoin_stays_until_its_session_ends(self, driver):
        driver.stable(1, instances=("worker-1",), rebalance_timeout_ms=5_000, session_timeout_ms=30_000)
        dynamic = next(m for m in driver.rules.classic.groups["orders"].members if not m.startswith("worker"))
        driver.join(dynamic, protocols=(("range", b"x"),), rebalance_timeout_ms=5_000)

        driver.advance(5_000)
        assert "worker-1" in driver.rules.classic.groups["orders"].static_members

        driver.advance(40_000)
        assert "orders" in driver.rules.classic.groups
        assert driver.rules.classic.groups["orders"].static_members == {}

    def test_an_id_given_to_a_dynamic_member_cannot_be_used_with_an_instance_id(self, driver):
        member_id = driver.new_member_id()

        reply = driver.joined(driver.join(member_id, instance_id="worker-1"))

        assert reply.error is ErrorCode.UNKNOWN_MEMBER_ID
