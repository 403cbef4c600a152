from __future__ import annotations

import pytest

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_coordinator.groups.settings import CLIENT
from klamm_coordinator.records.group_topic_schema import GroupTopicKey, GroupTopicValue
from klamm_coordinator.records.schemas import GroupRecord
from klamm_coordinator.runtime.log_write import TxnProducer

GROUP = "orders"


def new(driver, *numbers, topic="t", group_id=GROUP):
    """Returns those partitions in which the group would begin with the first record."""
    wanted = [TopicPartition(topic, number) for number in numbers]
    return [one.partition.partition for one in driver.rules.growth.fetch(group_id, wanted) if one.is_new]


def all_of(driver, group_id=GROUP):
    return [(one.partition.partition, one.offset, one.is_new) for one in driver.rules.growth.fetch(group_id, None)]


def known(driver, group_id=GROUP):
    """Returns the partition counts that are stored for the group."""
    topics = driver.rules.state.topics.of_group(group_id)
    return {topic: value.partition_count for topic, value in topics.items()}


def rebalance(driver, *members):
    """Lets the members of a classic group join again. The first one is new, or has changed what it reads."""
    for member in members:
        member.send_join()
    leaders = [member for member in members if member.joined().leader == member.member_id]
    for member in sorted(members, key=lambda member: member not in leaders):
        member.send_sync({})
        assert member.synced() is ErrorCode.NONE


class TestGroupsThatOnlyStoreOffsets:
    def test_partitions_of_a_topic_that_grows_are_new(self, driver):
        driver.topics_are(t=2)
        driver.commit(7)

        driver.topics_are(t=4)

        assert new(driver, 0, 1, 2, 3) == [2, 3]
        assert all_of(driver) == [(0, 7, False), (2, -1, True), (3, -1, True)]

    def test_a_partition_that_this_coordinator_does_not_know_yet_is_new(self, driver):
        driver.topics_are(t=2)
        driver.commit(7)
        assert new(driver, 1, 2) == [2]

    def test_a_partition_with_an_offset_is_not_new(self, driver):
        driver.topics_are(t=1)
        driver.commit(7)
        driver.topics_are(t=2)
        driver.commit(3, partition=1)
        assert new(driver, 1) == []
        assert driver.offset(partition=1) == 3

    def test_a_group_without_commits_in_the_topic_has_no_new_partitions(self, driver):
        driver.topics_are(t=2, u=1)
        driver.commit(7, topic="u")
        driver.topics_are(t=4, u=1)
        assert new(driver, 3) == []
        assert new(driver, 3, group_id="elsewhere") == []

    def test_the_client_decides_if_the_setting_says_so(self, make_driver):
        driver = make_driver(new_partition_offset_reset=CLIENT)
        driver.topics_are(t=1)
        driver.commit(7)
        driver.topics_are(t=2)
        assert (new(driver, 1), known(driver), all_of(driver)) == ([], {}, [(0, 7, False)])

    def test_all_partitions_of_a_later_topic_of_the_same_name_are_new(self, driver):
        driver.topics_are(t=2)
        driver.commit(7)
        driver.topics_are()
        driver.topics_are(t=2)
        assert new(driver, 0, 1) == [1]  # the offset of partition 0 goes with the news of the deletion

    def test_a_transaction_counts_once_it_is_committed(self, driver):
        driver.topics_are(t=1)
        for committed in (False, True):
            producer = TxnProducer(9, int(committed))
            driver.txn_commit(5, producer)
            assert known(driver) == {}
            driver.end_transaction(producer, committed=committed)
        assert known(driver) == {"t": 1}


class TestMembers:
    def test_a_classic_group_without_commits_was_there_before_the_partition(self, driver):
        driver.topics_are(t=2)
        driver.classic_group(driver.classic_consumer(topics=("t",)))
        driver.topics_are(t=3)
        assert new(driver, 0, 1, 2) == [2]

    def test_a_consumer_group_without_commits_was_there_before_the_partition(self, driver):
        driver.topics_are(t=2)
        driver.settle(driver.consumer("a", topics=("t",)))
        driver.topics_are(t=3)
        assert new(driver, 0, 1, 2) == [2]

    def test_a_group_that_is_down_while_the_topic_grows_finds_new_partitions(self, driver):
        driver.topics_are(t=2)
        member = driver.consumer("a", topics=("t",))
        driver.settle(member)
        driver.commit(5, generation_id=member.epoch, member_id="a")
        member.leave()
        driver.topics_are(t=3)
        driver.crash()
        driver.settle(driver.consumer("b", topics=("t",)))
        assert new(driver, 0, 1, 2) == [2]

    def test_a_topic_that_does_not_exist_yet_will_be_new(self, driver):
        driver.topics_are(u=1)
        driver.settle(driver.consumer("a", topics=("t",)))
        driver.topics_are(u=1, t=2)
        assert new(driver, 0, 1) == [0, 1]

    def test_a_topic_that_existed_before_a_member_subscribed_is_not_new(self, driver):
        driver.topics_are(t=1)
        driver.settle(driver.consumer("a", topics=("t",)))
        driver.topics_are(t=1, u=2)
        driver.settle(driver.consumer("b", topics=("t", "u")))
        driver.crash()
        driver.settle(driver.consumer("c", topics=("t", "u")))
        assert new(driver, 0, 1, topic="u") == [0, 1]  # "a" was a member before the topic existed

    def test_a_topic_of_a_group_whose_members_all_joined_later_is_not_new(self, driver):
        driver.topics_are(t=1)
        first = driver.consumer("a", topics=("t",))
        driver.settle(first)
        first.leave()
        driver.topics_are(t=1, u=2)
        driver.settle(driver.consumer("b", topics=("t", "u")))
        assert new(driver, 0, 1, topic="u") == []

    def test_a_topic_that_an_expression_matches_later_is_new(self, driver):
        driver.topics_are(t1=1)
        member = driver.consumer("a", topics=(), regex="t.*")
        driver.settle(member)
        driver.topics_are(t1=1, t2=2)
        driver.settle(member)
        assert known(driver) == {"t1": 1, "t2": 0}
        assert new(driver, 0, 1, topic="t2") == [0, 1]

    def test_the_pattern_of_a_classic_client_may_match_a_topic_long_after_another_rebalance(self, driver):
        driver.topics_are(t1=1)
        watcher, other = driver.classic_consumer(topics=("t1",)), driver.classic_consumer(topics=("t1",))
        driver.classic_group(watcher)
        driver.topics_are(t1=1, t2=2)
        rebalance(driver, other, watcher)
        assert known(driver) == {"t1": 1}
        watcher.topics = ("t1", "t2")
        rebalance(driver, watcher, other)
        assert new(driver, 0, 1, topic="t2") == [0, 1]


class TestRecords:
    def test_nothing_is_written_twice(self, driver):
        driver.topics_are(t=9)
        driver.auto_ack = False
        for partition in range(3):
            driver.commit(1, partition=partition)
        for _ in range(3):
            driver.ack()
        assert [len(write.records) for write in driver.unsent] == [1]

    def test_a_topic_is_known_while_its_record_is_written(self, driver):
        driver.topics_are(t1=1)
        member = driver.consumer("a", topics=(), regex="t.*")
        driver.settle(member)
        driver.topics_are(t1=1, t2=2)
        driver.auto_ack = False
        driver.consumer_heartbeat("a", member.epoch)
        driver.ack()
        assert known(driver) == {"t1": 1}
        assert new(driver, 0, 1, topic="t2") == [0, 1]

    def test_a_record_that_fails_is_written_after_the_next_commit(self, driver):
        driver.topics_are(t=1)
        driver.auto_ack = False
        driver.commit(1)
        driver.ack()
        driver.nack(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert known(driver) == {}
        driver.auto_ack = True
        driver.commit(2)
        assert known(driver) == {"t": 1}

    def test_the_record_of_a_topic_goes_with_its_last_offset(self, driver):
        driver.topics_are(t=2, u=1)
        driver.commit(1)
        driver.commit(1, partition=1)
        driver.commit(1, topic="u")
        driver.delete_offsets(("t", 0))
        assert known(driver) == {"t": 2, "u": 1}
        driver.delete_offsets(("t", 1))
        assert known(driver) == {"u": 1}

    def test_the_record_of_a_topic_goes_with_its_last_subscription(self, driver):
        driver.topics_are(t=1, u=1)
        driver.settle(driver.consumer("a", topics=("t", "u")))
        driver.consumer_heartbeat("a", 1, topics=("u",))
        assert known(driver) == {"u": 1}

    def test_an_empty_group_keeps_the_records(self, driver):
        driver.topics_are(t=1)
        member = driver.consumer("a", topics=("t",))
        driver.settle(member)
        member.leave()
        assert known(driver) == {"t": 1}

    def test_a_deleted_group_leaves_no_record(self, driver):
        driver.topics_are(t=1)
        driver.commit(1)
        assert driver.replies[driver.delete_groups(GROUP)].errors == (ErrorCode.NONE,)
        assert driver.rules.state == driver.replayed()
        assert list(driver.rules.state.topics.group_ids()) == []

    def test_a_record_that_is_stored_after_its_group_was_deleted_is_deleted(self, driver):
        driver.topics_are(t=1)
        driver.auto_ack = False
        driver.commit(1)
        driver.delete_groups(GROUP)
        while driver.unsent:
            driver.ack()
        assert list(driver.rules.state.topics.group_ids()) == []

    def test_a_record_that_was_left_is_deleted_after_the_next_load(self, driver):
        driver.topics_are(t=1)
        driver.rules.state.topics.replay(GroupTopicKey("gone", "t"), GroupTopicValue(bytes(16), 1))
        driver.log.append(_record("gone", "t"))
        driver.crash()
        while driver.unsent:
            driver.ack()
        assert list(driver.rules.state.topics.group_ids()) == []


def _record(group_id, topic):
    return GroupRecord(GroupTopicKey(group_id, topic), GroupTopicValue(bytes(16), 1))


@pytest.mark.parametrize("count", [1, 2_500])
def test_many_topics_are_written_in_parts(driver, count):
    names = {f"t{number}": 1 for number in range(count)}
    driver.topics_are(**names)
    driver.settle(driver.consumer("a", topics=tuple(names)))
    assert known(driver) == names
