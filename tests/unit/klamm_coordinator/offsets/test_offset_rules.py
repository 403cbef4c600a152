"""Offsets: who may commit, what is read, what is deleted, what expires."""

from __future__ import annotations

import pytest

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_coordinator.records.schemas import (
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    Record,
)
from klamm_coordinator.shard import deletion
from klamm_coordinator.shard.events import TopicsDeleted

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


def errors(driver, reply_id):
    return driver.replies[reply_id].errors


class TestCommit:
    def test_a_member_commits_in_its_generation(self, driver):
        (member,) = driver.stable(1)

        reply_id = driver.commit(42, generation_id=1, member_id=member, metadata="note")

        assert errors(driver, reply_id) == (ErrorCode.NONE,)
        (fetched,) = driver.shard.fetch_offsets("orders", None)
        assert fetched.partition == TopicPartition("t", 0)
        assert (fetched.offset, fetched.leader_epoch, fetched.metadata) == (42, 7, "note")

    def test_anybody_commits_while_nobody_is_in_the_group(self, driver):
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
    def test_who_may_not_and_what(self, driver, kwargs, error):
        (member,) = driver.stable(1)
        wanted = {key: member if value == "MEMBER" else value for key, value in kwargs.items()}

        assert errors(driver, driver.commit(42, **wanted)) == (error,)
        assert driver.offset() == -1

    def test_metadata_up_to_the_limit_is_stored(self, driver):
        assert errors(driver, driver.commit(1, metadata="ü" * 2_048)) == (ErrorCode.NONE,)

    def test_nothing_is_committed_while_assignments_are_awaited(self, driver):
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

    def test_it_is_answered_and_read_only_when_it_is_stored(self, driver):
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
    def test_if_it_cannot_be_stored_nothing_has_happened(self, driver, broker_error, error):
        driver.commit(41)
        driver.auto_ack = False
        reply_id = driver.commit(42)

        driver.nack(broker_error)

        assert errors(driver, reply_id) == (error,)
        assert driver.offset() == 41

    def test_one_that_takes_too_long_is_told_so_and_may_be_stored_after_all(self, driver):
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

        assert driver.shard.groups == {}

    def test_group_count_max_bounds_it_too(self, make_driver):
        driver = make_driver(group_count_max=1)
        driver.commit(1, group_id="one")

        assert errors(driver, driver.commit(1, group_id="two")) == (ErrorCode.GROUP_MAX_SIZE_REACHED,)


class TestFetch:
    def test_what_is_not_there_is_minus_one(self, driver):
        driver.commit(5, partition=2)

        asked = [TopicPartition("t", 2), TopicPartition("t", 1), TopicPartition("u", 0)]
        fetched = driver.shard.fetch_offsets("orders", asked)

        assert [(one.partition, one.offset) for one in fetched] == list(zip(asked, [5, -1, -1], strict=True))

    def test_everything_is_sorted(self, driver):
        for topic, partition in [("b", 1), ("a", 10), ("a", 2)]:
            driver.commit(1, topic=topic, partition=partition)

        fetched = driver.shard.fetch_offsets("orders", None)

        assert [str(one.partition) for one in fetched] == ["a-2", "a-10", "b-1"]

    def test_a_group_that_is_not_there_has_nothing(self, driver):
        assert driver.shard.fetch_offsets("elsewhere", None) == ()


class TestDeleteOffsets:
    def test_kip_496_topics_in_use_are_refused(self, driver):
        (member,) = driver.stable(1)
        driver.commit(1, generation_id=1, member_id=member)
        driver.commit(1, generation_id=1, member_id=member, topic="old")

        reply = driver.replies[driver.delete_offsets(("t", 0), ("old", 0), ("old", 9))]

        assert reply.errors == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE, ErrorCode.NONE)
        assert (driver.offset(), driver.offset("old")) == (1, -1)

    def test_of_consumers_whose_subscription_does_not_parse_everything_is_in_use(self, driver):
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
        assert driver.shard.groups == {}

    def test_of_no_group(self, driver):
        reply = driver.replies[driver.delete_offsets(("t", 0))]

        assert reply.error is ErrorCode.GROUP_ID_NOT_FOUND

    def test_of_a_group_with_members_that_are_no_consumers(self, driver):
        driver.stable(1, protocol_type="connect")

        reply = driver.replies[driver.delete_offsets(("t", 0))]

        assert reply.error is ErrorCode.NON_EMPTY_GROUP


class TestDeleteGroups:
    def test_takes_the_offsets_with_it(self, driver):
        (member,) = driver.stable(1)
        driver.commit(1, generation_id=1, member_id=member)
        driver.commit(2, generation_id=1, member_id=member, topic="u")
        driver.leave((member, None))

        reply_id = driver.delete_groups("orders", "elsewhere")

        assert errors(driver, reply_id) == (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
        assert driver.shard.groups == {}
        assert driver.log[-3:] == [
            Record(OffsetCommitKey("orders", "t", 0), None),
            Record(OffsetCommitKey("orders", "u", 0), None),
            Record(GroupMetadataKey("orders"), None),
        ]

    def test_is_refused_while_there_are_members(self, driver):
        driver.stable(1)

        assert errors(driver, driver.delete_groups("orders")) == (ErrorCode.NON_EMPTY_GROUP,)

    def test_meanwhile_the_group_is_dead(self, driver):
        driver.commit(1)
        driver.auto_ack = False
        driver.delete_groups("orders")

        assert driver.state() == "Dead"
        assert driver.joined(driver.join()).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert errors(driver, driver.commit(2)) == (ErrorCode.COORDINATOR_NOT_AVAILABLE,)
        assert errors(driver, driver.delete_groups("orders")) == (ErrorCode.GROUP_ID_NOT_FOUND,)
        assert driver.shard.describe("orders") is None

    def test_if_it_fails_the_group_is_back(self, driver):
        (member,) = driver.stable(1)
        driver.commit(1, generation_id=1, member_id=member)
        driver.leave((member, None))
        driver.auto_ack = False
        reply_id = driver.delete_groups("orders")

        driver.nack(ErrorCode.NOT_ENOUGH_REPLICAS)

        assert errors(driver, reply_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE,)
        assert driver.state() == "Empty"
        assert driver.shard.groups["orders"].generation_id == 2
        assert driver.offset() == 1

    def test_if_it_took_too_long_and_worked_after_all_the_state_is_what_the_log_says(self, driver):
        driver.commit(1)
        driver.auto_ack = False
        driver.delete_groups("orders")
        driver.advance(5_000)
        assert driver.state() == "Empty"

        driver.ack()

        assert driver.shard.groups == {}
        assert driver.shard.state == driver.replayed()

    def test_a_group_of_many_offsets_is_deleted_in_parts(self, driver):
        for partition in range(2_500):
            driver.commit(1, partition=partition)
        driver.auto_ack = False

        reply_id = driver.delete_groups("orders")

        assert [len(write.records) for write in driver.unsent] == [1_000, 1_000, 501]
        for _ in range(3):
            assert reply_id not in driver.replies
            driver.ack()
        assert errors(driver, reply_id) == (ErrorCode.NONE,)

    def test_if_only_a_part_of_it_could_be_stored_the_rest_is_still_there(self, driver):
        for partition in range(1_500):
            driver.commit(1, partition=partition)
        driver.auto_ack = False
        reply_id = driver.delete_groups("orders")

        driver.nack(ErrorCode.MESSAGE_TOO_LARGE)
        driver.ack()

        assert errors(driver, reply_id) == (ErrorCode.UNKNOWN_SERVER_ERROR,)
        assert len(driver.shard.fetch_offsets("orders", None)) == 1_000
        driver.auto_ack = True
        driver.delete_groups("orders")
        assert driver.shard.groups == {}


class TestExpiry:
    """KIP-211; the default retention is a week, looked at every ten minutes."""

    def test_an_empty_groups_offsets_expire_a_week_after_it_became_so(self, driver):
        (member,) = driver.stable(1, session_timeout_ms=1_800_000)
        driver.commit(1, generation_id=1, member_id=member)
        driver.advance(20 * MINUTE_MS)
        driver.leave((member, None))

        driver.advance(7 * DAY_MS - 1)
        assert driver.offset() == 1

        driver.advance(10 * MINUTE_MS)
        assert driver.offset() == -1
        assert driver.shard.groups == {}
        assert driver.shard.state.groups == {}

    def test_offsets_of_no_group_expire_a_week_after_their_commit(self, driver):
        driver.commit(1)
        driver.advance(3 * DAY_MS)
        driver.commit(2, partition=1)

        driver.advance(4 * DAY_MS + 10 * MINUTE_MS)
        assert (driver.offset(), driver.offset(partition=1)) == (-1, 2)

        driver.advance(3 * DAY_MS)
        assert driver.shard.groups == {}

    def test_of_consumers_topics_that_nobody_subscribes_to_expire(self, driver):
        (member,) = driver.stable(1)
        driver.commit(1, generation_id=1, member_id=member)
        driver.commit(1, generation_id=1, member_id=member, topic="old")
        for _ in range(7 * 24 * 60 * 7):
            driver.advance(9_000)
            driver.heartbeat(1, member)

        assert (driver.offset(), driver.offset("old")) == (1, -1)

    def test_an_explicit_expiry_is_obeyed(self, driver):
        key = OffsetCommitKey("legacy", "t", 0)
        value = OffsetCommitValue(1, -1, "", driver.now.wall_ms, driver.now.wall_ms + 5 * MINUTE_MS)
        driver.log.append(Record(key, value))
        driver.shard.state.replay(driver.log[-1])
        driver.crash()

        driver.advance(10 * MINUTE_MS)

        assert driver.shard.groups == {}

    def test_many_offsets_are_looked_at_over_several_turns(self, driver, monkeypatch):
        monkeypatch.setattr(deletion, "OFFSETS_PER_EXPIRY_TURN", 5)
        for number in range(6):
            for partition in range(3):
                driver.commit(1, group_id=f"g{number}", partition=partition)
        driver.advance(7 * DAY_MS - 1)
        due_ms = driver.shard.next_deadline_ms()

        left = []
        while len(left) < 4:
            driver.advance(driver.shard.next_deadline_ms() - driver.now.monotonic_ms)
            left.append(sorted(driver.shard.groups))

        assert left == [["g2", "g3", "g4", "g5"], ["g4", "g5"], [], []]
        assert driver.now.monotonic_ms >= due_ms + 10 * MINUTE_MS

    def test_a_tombstone_that_cannot_be_stored_is_written_again(self, driver):
        driver.commit(1)
        driver.auto_ack = False
        driver.advance(7 * DAY_MS)
        driver.nack(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert driver.offset() == 1

        driver.advance(10 * MINUTE_MS)
        driver.ack()

        assert driver.shard.groups == {}


def test_offsets_of_a_deleted_topic_are_deleted(driver):
    driver.commit(1)
    driver.commit(2, topic="gone")
    driver.commit(3, topic="gone", group_id="other")

    driver.step(TopicsDeleted(topics=frozenset({"gone"})))

    assert driver.offset() == 1
    assert driver.offset("gone") == driver.offset("gone", group_id="other") == -1
    assert list(driver.shard.groups) == ["orders"]
