"""Tests groups that are deleted with their offsets, and offsets of deleted topics."""

from __future__ import annotations

from klamm.errors import ErrorCode
from klamm_coordinator.group_shard.events import TopicsDeleted
from klamm_coordinator.records.group_topic_schema import GroupTopicKey
from klamm_coordinator.records.schemas import (
    GroupMetadataKey,
    GroupRecord,
    OffsetCommitKey,
)


def errors(driver, reply_id):
    return driver.replies[reply_id].errors


class TestDeleteGroups:
    def test_deleting_a_group_deletes_its_offsets(self, driver):
        (member,) = driver.stable(1)
        driver.commit(1, generation_id=1, member_id=member)
        driver.commit(2, generation_id=1, member_id=member, topic="u")
        driver.leave((member, None))

        reply_id = driver.delete_groups("orders", "elsewhere")

        assert errors(driver, reply_id) == (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
        assert driver.rules.classic.groups == {}
        assert driver.log[-5:] == [
            GroupRecord(OffsetCommitKey("orders", "t", 0), None),
            GroupRecord(OffsetCommitKey("orders", "u", 0), None),
            GroupRecord(GroupTopicKey("orders", "t"), None),
            GroupRecord(GroupTopicKey("orders", "u"), None),
            GroupRecord(GroupMetadataKey("orders"), None),
        ]

    def test_deleting_a_group_with_members_is_refused(self, driver):
        driver.stable(1)

        assert errors(driver, driver.delete_groups("orders")) == (ErrorCode.NON_EMPTY_GROUP,)

    def test_a_group_is_dead_while_its_deletion_is_stored(self, driver):
        driver.commit(1)
        driver.auto_ack = False
        driver.delete_groups("orders")

        assert driver.state() == "Dead"
        assert driver.joined(driver.join()).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert errors(driver, driver.commit(2)) == (ErrorCode.COORDINATOR_NOT_AVAILABLE,)
        assert errors(driver, driver.delete_groups("orders")) == (ErrorCode.GROUP_ID_NOT_FOUND,)
        assert driver.rules.classic.describe("orders") is None

    def test_a_group_whose_deletion_fails_is_restored(self, driver):
        (member,) = driver.stable(1)
        driver.commit(1, generation_id=1, member_id=member)
        driver.leave((member, None))
        driver.auto_ack = False
        reply_id = driver.delete_groups("orders")

        driver.nack(ErrorCode.NOT_ENOUGH_REPLICAS)

        assert errors(driver, reply_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE,)
        assert driver.state() == "Empty"
        assert driver.rules.classic.groups["orders"].generation_id == 2
        assert driver.offset() == 1

    def test_a_deletion_that_is_stored_after_its_timeout_removes_the_group(self, driver):
        driver.commit(1)
        driver.auto_ack = False
        driver.delete_groups("orders")
        driver.advance(5_000)
        assert driver.state() == "Empty"

        driver.ack()

        assert driver.rules.classic.groups == {}
        assert driver.rules.state == driver.replayed()

    def test_a_group_of_many_offsets_is_deleted_in_parts(self, driver):
        for partition in range(2_500):
            driver.commit(1, partition=partition)
        driver.auto_ack = False

        reply_id = driver.delete_groups("orders")

        assert [len(write.records) for write in driver.unsent] == [1_000, 1_000, 502]
        for _ in range(3):
            assert reply_id not in driver.replies
            driver.ack()
        assert errors(driver, reply_id) == (ErrorCode.NONE,)

    def test_a_partly_stored_deletion_keeps_the_remaining_offsets(self, driver):
        for partition in range(1_500):
            driver.commit(1, partition=partition)
        driver.auto_ack = False
        reply_id = driver.delete_groups("orders")

        driver.nack(ErrorCode.MESSAGE_TOO_LARGE)
        driver.ack()

        assert errors(driver, reply_id) == (ErrorCode.UNKNOWN_SERVER_ERROR,)
        assert len(driver.rules.growth.fetch("orders", None)) == 1_000
        driver.auto_ack = True
        driver.delete_groups("orders")
        assert driver.rules.classic.groups == {}


def test_offsets_of_a_deleted_topic_are_deleted(driver):
    driver.commit(1)
    driver.commit(2, topic="gone")
    driver.commit(3, topic="gone", group_id="other")

    driver.step(TopicsDeleted(topics=frozenset({"gone"})))

    assert driver.offset() == 1
    assert driver.offset("gone") == driver.offset("gone", group_id="other") == -1
    assert list(driver.rules.classic.groups) == ["orders"]
