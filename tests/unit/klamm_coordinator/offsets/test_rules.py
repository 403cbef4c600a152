"""Tests offsets: which members may commit, which offsets are read, and which are deleted."""

from __future__ import annotations

import pytest

from klamm.errors import ErrorCode
from klamm.model import TopicPartition


def errors(driver, reply_id):
    return driver.replies[reply_id].errors


class TestCommit:
    def test_a_member_commits_in_its_generation(self, driver):
        (member,) = driver.stable(1)

        reply_id = driver.commit(42, generation_id=1, member_id=member, metadata="note")

        assert errors(driver, reply_id) == (ErrorCode.NONE,)
        (fetched,) = driver.rules.growth.fetch("orders", None)
        assert fetched.partition == TopicPartition("t", 0)
        assert (fetched.offset, fetched.leader_epoch, fetched.metadata) == (42, 7, "note")

    def test_a_client_may_commit_to_a_group_without_members(self, driver):
        assert errors(driver, driver.commit(42)) == (ErrorCode.NONE,)
        assert driver.state() == "Empty"

    @pytest.mark.parametrize(
        ("kwargs", "error"),
        [
            ({}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "stranger", "generation_id": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "MEMBER", "generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
            ({"member_id": "MEMBER", "generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
            ({"member_id": "MEMBER"}, ErrorCode.ILLEGAL_GENERATION),
            ({"generation_id": 1, "group_id": "elsewhere"}, ErrorCode.ILLEGAL_GENERATION),
            ({"member_id": "MEMBER", "generation_id": 1, "metadata": "ü" * 2_049}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ],
    )
    def test_an_invalid_commit_is_refused(self, driver, kwargs, error):
        (member,) = driver.stable(1)
        wanted = {key: member if value == "MEMBER" else value for key, value in kwargs.items()}

        assert errors(driver, driver.commit(42, **wanted)) == (error,)
        assert driver.offset() == -1

    def test_metadata_up_to_the_limit_is_stored(self, driver):
        assert errors(driver, driver.commit(1, metadata="ü" * 2_048)) == (ErrorCode.NONE,)

    def test_a_commit_in_completing_rebalance_is_refused(self, driver):
        join = driver.join(driver.new_member_id())
        driver.advance(3_000)
        member = driver.joined(join).member_id

        reply_id = driver.commit(1, generation_id=1, member_id=member)

        assert errors(driver, reply_id) == (ErrorCode.REBALANCE_IN_PROGRESS,)

    def test_a_member_may_still_commit_when_a_rebalance_begins(self, driver):
        leader, follower = driver.stable(2)
        driver.join(leader)

        reply_id = driver.commit(1, generation_id=1, member_id=follower)

        assert errors(driver, reply_id) == (ErrorCode.NONE,)

    def test_a_commit_is_answered_and_visible_only_when_it_is_stored(self, driver):
        driver.auto_ack = False

        reply_id = driver.commit(42)

        assert reply_id not in driver.replies
        assert driver.offset() == -1
        driver.ack()
        assert errors(driver, reply_id) == (ErrorCode.NONE,)
        assert driver.offset() == 42

    @pytest.mark.parametrize(
        ("broker_error", "error"),
        [
            (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
            (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
            (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
            (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        ],
    )
    def test_a_commit_that_cannot_be_stored_keeps_the_former_offset(self, driver, broker_error, error):
        driver.commit(41)
        driver.auto_ack = False
        reply_id = driver.commit(42)

        driver.nack(broker_error)

        assert errors(driver, reply_id) == (error,)
        assert driver.offset() == 41

    def test_a_commit_that_times_out_may_still_be_stored(self, driver):
        driver.auto_ack = False
        reply_id = driver.commit(42)

        driver.advance(5_000)

        assert errors(driver, reply_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE,)
        driver.ack()
        assert driver.offset() == 42

    def test_commits_are_stored_in_their_order(self, driver):
        driver.auto_ack = False
        driver.commit(1)
        driver.commit(2)
        driver.ack()
        driver.ack()

        assert driver.offset() == 2

    def test_a_refused_first_commit_leaves_no_group(self, driver):
        driver.commit(1, metadata="x" * 5_000)

        assert driver.rules.classic.groups == {}

    def test_a_commit_that_exceeds_group_count_max_is_refused(self, make_driver):
        driver = make_driver(group_count_max=1)
        driver.commit(1, group_id="one")

        assert errors(driver, driver.commit(1, group_id="two")) == (ErrorCode.GROUP_MAX_SIZE_REACHED,)


class TestFetch:
    def test_a_missing_offset_is_minus_one(self, driver):
        driver.commit(5, partition=2)

        asked = [TopicPartition("t", 2), TopicPartition("t", 1), TopicPartition("u", 0)]
        fetched = driver.rules.growth.fetch("orders", asked)

        assert [(one.partition, one.offset) for one in fetched] == list(zip(asked, [5, -1, -1], strict=True))

    def test_all_fetched_offsets_are_sorted_by_topic_and_partition(self, driver):
        for topic, partition in [("b", 1), ("a", 10), ("a", 2)]:
            driver.commit(1, topic=topic, partition=partition)

        fetched = driver.rules.growth.fetch("orders", None)

        assert [str(one.partition) for one in fetched] == ["a-2", "a-10", "b-1"]

    def test_an_unknown_group_has_no_offsets(self, driver):
        assert driver.rules.growth.fetch("elsewhere", None) == []


class TestDeleteOffsets:
    def test_kip_496_offsets_of_subscribed_topics_are_not_deleted(self, driver):
        (member,) = driver.stable(1)
        driver.commit(1, generation_id=1, member_id=member)
        driver.commit(1, generation_id=1, member_id=member, topic="old")

        reply = driver.replies[driver.delete_offsets(("t", 0), ("old", 0), ("old", 9))]

        assert reply.errors == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE, ErrorCode.NONE)
        assert (driver.offset(), driver.offset("old")) == (1, -1)

    def test_no_offsets_are_deleted_if_a_subscription_does_not_parse(self, driver):
        (member,) = driver.stable(1, protocols=(("range", b"?"),))
        driver.commit(1, generation_id=1, member_id=member)

        reply = driver.replies[driver.delete_offsets(("t", 0))]

        assert reply.errors == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,)

    def test_an_offset_that_is_being_written_is_deleted_too(self, driver):
        driver.auto_ack = False
        driver.commit(1)
        driver.delete_offsets(("t", 0))
        driver.ack()
        driver.ack()

        assert driver.offset() == -1
        assert driver.rules.classic.groups == {}

    def test_deleting_offsets_of_an_unknown_group_is_refused(self, driver):
        reply = driver.replies[driver.delete_offsets(("t", 0))]

        assert reply.error is ErrorCode.GROUP_ID_NOT_FOUND

    def test_deleting_offsets_of_a_group_with_other_members_than_consumers_is_refused(self, driver):
        driver.stable(1, protocol_type="connect")

        reply = driver.replies[driver.delete_offsets(("t", 0))]

        assert reply.error is ErrorCode.NON_EMPTY_GROUP
