"""Tests groups of the new protocol as their members see them: epochs, assignments, refusals (KIP-848)."""

from __future__ import annotations

import pytest

from klamm.errors import ErrorCode
from klamm_coordinator.records.consumer_group_schemas import MemberKey
from klamm_coordinator.runtime.log_write import TxnProducer

GROUP = "orders"
REBALANCE_MS = 60_000
SESSION_MS = 45_000


@pytest.fixture
def driver(make_driver):
    driver = make_driver()
    driver.topics_are(t=4)
    return driver


def group_of(driver, group_id=GROUP):
    return driver.rules.state.consumer_groups[group_id]


def numbers(member):
    return sorted(number for _, number in member.owned)


class TestJoining:
    def test_the_first_member_gets_all_partitions_immediately(self, driver):
        member = driver.consumer("a")

        reply = member.heartbeat()

        assert (reply.error, reply.member_epoch, reply.heartbeat_interval_ms) == (ErrorCode.NONE, 1, 5_000)
        assert numbers(member) == [0, 1, 2, 3]
        assert driver.rules.consumers.describe(GROUP).state == "Stable"

    def test_a_join_is_answered_only_when_it_is_stored(self, driver):
        driver.auto_ack = False
        reply_id = driver.consumer_heartbeat(
            "a", 0, topics=("t",), owned=frozenset(), rebalance_timeout_ms=REBALANCE_MS
        )

        assert reply_id not in driver.replies
        assert GROUP not in driver.rules.state.consumer_groups
        driver.ack()
        assert driver.replies[reply_id].error is ErrorCode.NONE

    def test_a_heartbeat_without_changes_writes_nothing_and_returns_no_assignment(self, driver):
        member = driver.consumer("a")
        member.heartbeat()
        written = len(driver.log)

        assert member.heartbeat().assignment is None
        assert len(driver.log) == written

    def test_a_second_member_gets_its_share_after_the_first_revoked_it(self, driver):
        first, second = driver.consumer("a"), driver.consumer("b")
        first.heartbeat()

        assert second.heartbeat().member_epoch == 2
        assert numbers(second) == []  # no partition is free
        reply = first.heartbeat()
        assert (reply.member_epoch, numbers(first)) == (1, [0, 1])  # keeps these at its old epoch
        second.heartbeat()
        assert numbers(second) == []  # the coordinator does not know yet that the first member revoked them
        assert first.heartbeat().member_epoch == 2
        second.heartbeat()
        assert numbers(second) == [2, 3]
        assert driver.rules.consumers.describe(GROUP).state == "Stable"

    def test_a_member_without_an_id_is_given_one(self, driver):
        reply_id = driver.consumer_heartbeat("", 0, topics=("t",), owned=frozenset(), rebalance_timeout_ms=1)

        assert driver.replies[reply_id].member_id in group_of(driver).members

    def test_members_that_join_during_a_write_share_the_next_write(self, driver):
        driver.auto_ack = False
        ids = [
            driver.consumer_heartbeat(
                f"m{number}", 0, topics=("t",), owned=frozenset(), rebalance_timeout_ms=REBALANCE_MS
            )
            for number in range(5)
        ]

        assert len(driver.unsent) == 1
        driver.ack()
        writes_of_members = [write for write in driver.unsent if isinstance(write.records[0].key, MemberKey)]
        assert len(writes_of_members) == 1
        driver.ack()
        driver.ack()
        assert [driver.replies[each].member_epoch for each in ids] == [1, 2, 2, 2, 2]

    def test_a_full_group_refuses_a_new_member(self, make_driver):
        driver = make_driver(consumer_size_max=1)
        driver.topics_are(t=1)
        driver.consumer("a").heartbeat()

        assert driver.consumer("b").heartbeat().error is ErrorCode.GROUP_MAX_SIZE_REACHED

    def test_a_join_that_cannot_be_stored_has_no_effect_and_returns_an_error(self, driver):
        driver.auto_ack = False
        reply_id = driver.consumer_heartbeat("a", 0, topics=("t",), owned=frozenset(), rebalance_timeout_ms=1)

        driver.nack(ErrorCode.NOT_ENOUGH_REPLICAS)

        assert driver.replies[reply_id].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert driver.rules.consumers.describe(GROUP) is None


class TestEpochs:
    def test_a_heartbeat_with_a_wrong_member_epoch_is_fenced(self, driver):
        member = driver.consumer("a")
        member.heartbeat()
        for epoch in (2, 7):
            member.epoch = epoch
            assert member.send().error is ErrorCode.FENCED_MEMBER_EPOCH

    def test_an_unknown_member_has_to_join(self, driver):
        driver.consumer("a").heartbeat()
        stranger = driver.consumer("b")
        stranger.epoch = 1

        assert stranger.send().error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_lost_answer_is_repeated_at_the_former_member_epoch(self, driver):
        first, second = driver.consumer("a"), driver.consumer("b")
        first.heartbeat()
        second.heartbeat()
        first.heartbeat()
        first.send()  # the member moves to epoch 2, but the reply is lost
        assert group_of(driver).current("a").member_epoch == 2

        reply = first.heartbeat()

        assert (reply.error, reply.member_epoch, numbers(first)) == (ErrorCode.NONE, 2, [0, 1])

    def test_a_member_one_epoch_behind_that_owns_revoked_partitions_is_fenced(self, driver):
        first, second = driver.consumer("a"), driver.consumer("b")
        first.heartbeat()
        everything = first._partitions()
        second.heartbeat()
        first.heartbeat()
        first.send()

        assert first.send(owned=everything).error is ErrorCode.FENCED_MEMBER_EPOCH

    def test_a_member_that_joins_again_with_its_id_gets_its_epoch_and_assignment(self, driver):
        member = driver.consumer("a")
        member.heartbeat()

        reply_id = driver.consumer_heartbeat(
            "a", 0, topics=("t",), owned=frozenset(), rebalance_timeout_ms=REBALANCE_MS
        )

        reply = driver.replies[reply_id]
        assert (reply.error, reply.member_epoch) == (ErrorCode.NONE, 1)
        assert [one.partitions for one in reply.assignment] == [(0, 1, 2, 3)]

    def test_a_late_duplicate_of_a_join_revokes_no_partition(self, driver):
        """The duplicate claims that the member owns nothing, but by now it has partitions and must revoke some."""
        first, second = driver.consumer("a"), driver.consumer("b")
        first.heartbeat()
        second.heartbeat()
        first.send()  # the reply asks it to revoke 2 and 3, which it has not done yet

        driver.consumer_heartbeat("a", 0, topics=("t",), owned=frozenset(), rebalance_timeout_ms=REBALANCE_MS)
        second.heartbeat()

        assert numbers(second) == []

    def test_commits_are_fenced_by_the_member_epoch(self, driver):
        first, second = driver.consumer("a"), driver.consumer("b")
        driver.settle(first, second)

        def commit(epoch, member_id):
            return driver.replies[driver.commit(5, generation_id=epoch, member_id=member_id)].errors[0]

        assert commit(first.epoch, "a") is ErrorCode.NONE
        assert commit(first.epoch + 1, "a") is ErrorCode.STALE_MEMBER_EPOCH
        assert commit(first.epoch, "c") is ErrorCode.UNKNOWN_MEMBER_ID
        assert commit(-1, "") is ErrorCode.UNKNOWN_MEMBER_ID  # the commit names no member, but the group has members

    def test_a_commit_at_the_former_member_epoch_is_accepted_for_kept_partitions(self, driver):
        first, second = driver.consumer("a"), driver.consumer("b")
        first.heartbeat()
        second.heartbeat()
        first.heartbeat()
        first.send()  # the member revoked 2 and 3 and is at epoch 2, but lacks the reply

        def commit(epoch, partition):
            committing = driver.commit(5, generation_id=epoch, member_id="a", partition=partition)
            return driver.replies[committing].errors[0]

        assert commit(1, 0) is ErrorCode.NONE
        assert commit(1, 2) is ErrorCode.STALE_MEMBER_EPOCH
        second.heartbeat()
        driver.consumer("c").heartbeat()
        first.heartbeat()
        assert commit(0, 0) is ErrorCode.STALE_MEMBER_EPOCH

    def test_transactional_offset_commits_are_fenced_by_the_member_epoch(self, driver):
        member = driver.consumer("a")
        member.heartbeat()
        producer = TxnProducer(7, 1)

        def commit(**who):
            return driver.replies[driver.txn_commit(5, producer, **who)].errors[0]

        assert commit(generation_id=9, member_id="a") is ErrorCode.STALE_MEMBER_EPOCH
        assert commit(generation_id=1, member_id="b") is ErrorCode.UNKNOWN_MEMBER_ID
        assert commit(generation_id=1, member_id="a") is ErrorCode.NONE
        assert commit() is ErrorCode.NONE  # the commit names no member, because the producer epoch fences it

    def test_offset_fetches_are_fenced_by_the_member_epoch(self, driver):
        member = driver.consumer("a")
        member.heartbeat()

        assert driver.rules.offsets.fetch_error(GROUP, "a", 1) is ErrorCode.NONE
        assert driver.rules.offsets.fetch_error(GROUP, "a", 2) is ErrorCode.STALE_MEMBER_EPOCH
        assert driver.rules.offsets.fetch_error(GROUP, "b", 1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert driver.rules.offsets.fetch_error(GROUP, "", -1) is ErrorCode.NONE


class TestLeaving:
    def test_the_partitions_of_a_member_that_leaves_go_to_the_others(self, driver):
        first, second = driver.consumer("a"), driver.consumer("b")
        driver.settle(first, second)

        assert first.leave() is ErrorCode.NONE
        driver.settle(second)

        assert numbers(second) == [0, 1, 2, 3]
        assert second.epoch == group_of(driver).epoch

    def test_a_member_is_removed_after_its_session_timeout(self, driver):
        first, second = driver.consumer("a"), driver.consumer("b")
        driver.settle(first, second)
        for _ in range(10):
            driver.advance(SESSION_MS // 9)
            second.heartbeat()

        assert list(group_of(driver).members) == ["b"]
        assert first.send().error is ErrorCode.UNKNOWN_MEMBER_ID
        driver.settle(second)
        assert numbers(second) == [0, 1, 2, 3]

    def test_a_member_whose_heartbeats_are_refused_because_the_log_is_slow_keeps_its_session(self, make_driver):
        driver = make_driver(pending_writes_max=1)
        driver.topics_are(t=4)
        member = driver.consumer("a")
        driver.settle(member)
        driver.auto_ack = False
        driver.commit(1, group_id="another")
        for _ in range(10):
            driver.advance(SESSION_MS // 9)
            assert driver.consumer_heartbeat("a", member.epoch) not in driver.replies, "it was not refused"
        driver.auto_ack = True
        while driver.unsent:
            driver.ack()

        assert list(group_of(driver).members) == ["a"]
        assert member.heartbeat().error is ErrorCode.NONE

    def test_a_member_that_does_not_revoke_within_the_rebalance_timeout_is_removed(self, driver):
        first, second = driver.consumer("a"), driver.consumer("b")
        first.heartbeat()
        everything = first._partitions()
        second.heartbeat()
        for _ in range(REBALANCE_MS // 5_000 + 1):
            first.heartbeat(owned=everything)
            second.heartbeat()
            driver.advance(5_000)
        second.heartbeat()

        assert list(group_of(driver).members) == ["b"]
        assert numbers(second) == [0, 1, 2, 3]

    def test_a_group_without_members_accepts_outside_commits_and_can_be_deleted(self, driver):
        member = driver.consumer("a")
        member.heartbeat()
        assert driver.replies[driver.delete_groups(GROUP)].errors == (ErrorCode.NON_EMPTY_GROUP,)
        member.leave()

        assert driver.replies[driver.commit(5)].errors == (ErrorCode.NONE,)
        assert driver.replies[driver.delete_groups(GROUP)].errors == (ErrorCode.NONE,)
        assert GROUP not in driver.rules.state
        assert driver.offset() == -1
        assert GROUP not in driver.replayed()

    def test_an_administrator_removes_members(self, driver):
        first, second = driver.consumer("a", instance_id="i"), driver.consumer("b")
        driver.settle(first, second)

        assert driver.leave(("", "i"), ("b", None), ("c", None)) == (
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_MEMBER_ID,
        )
        assert driver.rules.consumers.describe(GROUP).state == "Empty"

    def test_a_member_that_leaves_while_its_heartbeat_waits_is_not_restored(self, driver):
        first = driver.consumer("a")
        first.heartbeat()
        driver.auto_ack = False
        driver.consumer_heartbeat("b", 0, topics=("t",), owned=frozenset(), rebalance_timeout_ms=1)
        waiting = driver.consumer_heartbeat("a", 1, owned=first._partitions())
        driver.consumer_heartbeat("a", -1)

        driver.ack()
        driver.ack()

        assert driver.replies[waiting].error is ErrorCode.UNKNOWN_MEMBER_ID
        assert list(group_of(driver).currents) == ["b"]


class TestStaticMembers:
    def test_a_static_member_that_returns_has_its_former_partitions(self, driver):
        first, second = driver.consumer("a", instance_id="i"), driver.consumer("b")
        driver.settle(first, second)
        had, epoch = numbers(first), group_of(driver).epoch
        assert first.leave(-2) is ErrorCode.NONE
        driver.settle(second)
        assert len(second.owned) == 2  # the absent static member's partitions stay reserved

        successor = driver.consumer("a2", instance_id="i")
        successor.heartbeat()

        assert (numbers(successor), successor.epoch, group_of(driver).epoch) == (had, epoch, epoch)
        assert list(group_of(driver).members) == ["b", "a2"]

    def test_an_instance_id_in_use_is_refused_as_unreleased(self, driver):
        driver.consumer("a", instance_id="i").heartbeat()

        assert driver.consumer("a2", instance_id="i").heartbeat().error is ErrorCode.UNRELEASED_INSTANCE_ID

    def test_the_former_process_of_an_instance_is_fenced(self, driver):
        former = driver.consumer("a", instance_id="i")
        former.heartbeat()
        former.leave(-2)
        driver.consumer("a2", instance_id="i").heartbeat()

        assert former.send().error is ErrorCode.FENCED_INSTANCE_ID

    def test_a_static_member_that_does_not_return_is_removed_after_its_session(self, driver):
        first, second = driver.consumer("a", instance_id="i"), driver.consumer("b")
        driver.settle(first, second)
        first.leave(-2)
        for _ in range(10):
            driver.advance(SESSION_MS // 9)
            second.heartbeat()
        driver.settle(second)

        assert len(second.owned) == 4


class TestTopics:
    def test_new_partitions_are_assigned(self, driver):
        member = driver.consumer("a")
        member.heartbeat()
        driver.topics_are(t=6)

        member.heartbeat()

        assert numbers(member) == [0, 1, 2, 3, 4, 5]
        assert member.epoch == 2

    def test_the_partitions_of_a_deleted_topic_are_revoked(self, driver):
        driver.topics_are(t=2, u=2)
        member = driver.consumer("a", topics=("t", "u"))
        member.heartbeat()
        driver.topics_are(t=2)

        driver.settle(member)

        assert member.owned == {("t", 0), ("t", 1)}

    def test_a_subscribed_topic_is_assigned_when_it_is_created(self, driver):
        member = driver.consumer("a", topics=("later",))
        member.heartbeat()
        assert member.owned == set()
        driver.topics_are(t=4, later=1)

        member.heartbeat()

        assert member.owned == {("later", 0)}

    def test_a_regex_matches_whole_topic_names_and_topics_created_later(self, driver):
        driver.topics_are(**{"orders-1": 1, "orders-2": 1, "old-orders-3": 1})
        member = driver.consumer("a", topics=(), regex="orders-[0-9]+")
        member.heartbeat()
        assert member.owned == {("orders-1", 0), ("orders-2", 0)}
        driver.topics_are(**{"orders-2": 1, "orders-77": 1})

        driver.settle(member)

        assert member.owned == {("orders-2", 0), ("orders-77", 0)}

    @pytest.mark.parametrize("regex", ["(", "(?=a)", "a{2000}"])
    def test_an_invalid_regex_is_refused(self, driver, regex):
        reply = driver.consumer("a", topics=(), regex=regex).heartbeat()

        assert reply.error is ErrorCode.INVALID_REGULAR_EXPRESSION
        assert repr(regex) in reply.message

    def test_offsets_of_topics_in_use_are_not_deleted(self, driver):
        driver.consumer("a").heartbeat()
        driver.commit(5, generation_id=1, member_id="a", topic="t")

        reply = driver.replies[driver.delete_offsets(("t", 0))]

        assert reply.errors == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,)

    def test_most_members_choose_the_assignor(self, driver):
        members = [driver.consumer("a", assignor="range"), driver.consumer("b"), driver.consumer("c", assignor="range")]
        driver.settle(*members)

        assert driver.rules.consumers.describe(GROUP).assignor == "range"
        assert [numbers(member) for member in members] == [[0, 1], [2], [3]]


class TestFailOver:
    def test_a_new_shard_owner_continues_the_rebalance(self, driver):
        first, second = driver.consumer("a", instance_id="i"), driver.consumer("b", topics=(), regex="t.*")
        first.heartbeat()
        second.heartbeat()
        first.heartbeat()  # must revoke two partitions
        driver.crash()

        driver.settle(first, second)

        assert (len(first.owned), len(second.owned)) == (2, 2)
        assert not first.owned & second.owned

    def test_sessions_and_rebalance_timeouts_expire_at_the_new_shard_owner_too(self, driver):
        first, second = driver.consumer("a"), driver.consumer("b")
        first.heartbeat()
        second.heartbeat()
        first.send()
        driver.crash()
        driver.advance(max(SESSION_MS, REBALANCE_MS))

        assert driver.rules.consumers.describe(GROUP).state == "Empty"


class TestTheOtherProtocol:
    def test_an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets(self, driver):
        (member_id,) = driver.stable()
        driver.commit(7, generation_id=1, member_id=member_id)
        driver.leave((member_id, None))

        assert driver.consumer("a").heartbeat().error is ErrorCode.NONE

        assert GROUP not in driver.rules.classic.groups
        assert GROUP not in driver.rules.state.groups
        assert driver.offset() == 7
        assert driver.replayed() == driver.rules.state

    def test_an_empty_consumer_group_becomes_a_classic_group_and_keeps_its_offsets(self, driver):
        member = driver.consumer("a")
        member.heartbeat()
        driver.commit(7, generation_id=1, member_id="a")
        member.leave()

        driver.stable()

        assert driver.rules.consumers.describe(GROUP) is None
        assert driver.offset() == 7
        assert driver.replayed() == driver.rules.state

    def test_two_concurrent_joins_with_different_protocols_join_one_consumer_group(self, driver):
        driver.auto_ack = False
        joined = driver.consumer_heartbeat("a", 0, topics=("t",), owned=frozenset(), rebalance_timeout_ms=1)
        classic = driver.join(joins_without_id=True)
        driver.commit(3)
        while driver.unsent:
            driver.ack()

        assert driver.replies[joined].error is ErrorCode.NONE
        assert driver.joined(classic).error is ErrorCode.NONE
        assert len(driver.rules.state.consumer_groups[GROUP].members) == 2

    def test_a_group_with_a_pending_write_is_not_deleted(self, driver):
        driver.commit(3)
        driver.auto_ack = False
        driver.consumer_heartbeat("a", 0, topics=("t",), owned=frozenset(), rebalance_timeout_ms=1)

        deleted = driver.delete_groups(GROUP)

        assert driver.replies[deleted].errors == (ErrorCode.COORDINATOR_NOT_AVAILABLE,)
        driver.ack()
        assert driver.offset() == 3


class TestRetention:
    def test_offsets_of_subscribed_topics_stay_and_others_expire(self, make_driver):
        driver = make_driver(offsets_retention_minutes=1, offsets_retention_check_interval_ms=10_000)
        driver.topics_are(t=1, u=1)
        driver.commit(3, topic="u")
        member = driver.consumer("a")
        member.heartbeat()
        driver.commit(5, generation_id=1, member_id="a")
        for _ in range(9):
            driver.advance(10_000)
            member.heartbeat()

        assert (driver.offset(), driver.offset("u")) == (5, -1)
        member.leave()
        driver.advance(20_000)
        assert GROUP not in driver.rules.state
