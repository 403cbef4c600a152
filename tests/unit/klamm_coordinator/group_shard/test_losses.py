"""Tests that a shard counts what groups lost, once, and keeps it as long as the committed offset."""

from __future__ import annotations

import pytest

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_coordinator.group_shard.events import (
    ForgetLosses,
    ForgetLossesReply,
    LogStart,
    LogStartsFound,
    TopicsDeleted,
)
from klamm_coordinator.offsets.messages import DeleteGroups
from klamm_coordinator.records.lost_records_schema import LostRecordsKey, LostRecordsValue
from klamm_coordinator.records.schemas import GroupRecord
from klamm_coordinator.runtime.log_write import TxnProducer
from tests.unit.klamm_coordinator.conftest import GROUP, WALL_START_MS


def starts_at(driver, offset, *, partition=0, topic="t", group_id=GROUP):
    driver.step(LogStartsFound(found=(LogStart(group_id, TopicPartition(topic, partition), offset),)))


def lost(driver, group_id=GROUP):
    losses = driver.rules.state.lost.of_group(group_id)
    return {str(partition): value.lost_count for partition, value in losses.items()}


@pytest.fixture
def with_offset(driver):
    driver.topics_are(t=2)
    driver.commit(10)
    return driver


def test_records_that_are_deleted_before_the_group_read_them_are_lost_once(with_offset):
    driver = with_offset
    for offset in (10, 25, 25, 40):
        starts_at(driver, offset)
    assert lost(driver) == {"t-0": 30}
    value = driver.rules.state.lost.of_group(GROUP)[TopicPartition("t", 0)]
    assert value == LostRecordsValue(30, 40, WALL_START_MS)
    assert driver.notes[-1] == (
        "retention deleted records before a group read them, group=orders partition=t-0 log_start_offset=40 lost=30"
    )


def test_the_count_outlives_the_next_commit_and_a_crash(with_offset):
    driver = with_offset
    starts_at(driver, 25)
    driver.commit(100)
    driver.crash()
    assert lost(driver) == {"t-0": 15}
    starts_at(driver, 130)
    assert lost(driver) == {"t-0": 45}


def test_a_log_that_begins_before_the_offset_of_now_loses_nothing(with_offset):
    driver = with_offset
    driver.commit(30)
    starts_at(driver, 25)
    assert lost(driver) == {}


def test_an_offset_that_is_being_committed_is_counted_afterwards(with_offset):
    driver = with_offset
    driver.auto_ack = False
    driver.commit(30)
    starts_at(driver, 25)
    assert len(driver.unsent) == 1, "only the commit"
    driver.ack()
    assert lost(driver) == {}


def test_a_count_that_is_being_written_is_not_written_twice(with_offset):
    driver = with_offset
    driver.auto_ack = False
    starts_at(driver, 25)
    starts_at(driver, 25)
    assert len(driver.unsent) == 1
    driver.nack(ErrorCode.NOT_ENOUGH_REPLICAS)
    driver.auto_ack = True
    starts_at(driver, 25)
    assert lost(driver) == {"t-0": 15}


def test_an_offset_of_an_open_transaction_is_not_compared(with_offset):
    driver = with_offset
    producer = TxnProducer(7, 0)
    driver.txn_commit(30, producer)
    starts_at(driver, 25)
    assert lost(driver) == {}


def test_groups_without_an_offset_and_unknown_groups_lose_nothing(with_offset):
    driver = with_offset
    starts_at(driver, 25, partition=1)
    starts_at(driver, 25, group_id="elsewhere")
    driver.commit(-1, partition=1)
    starts_at(driver, 25, partition=1)
    assert (lost(driver), lost(driver, "elsewhere")) == ({}, {})


def test_the_count_goes_with_the_group(with_offset):
    driver = with_offset
    starts_at(driver, 25)
    driver.ask(DeleteGroups(reply_id=0, group_ids=(GROUP,)))
    assert lost(driver) == {}
    assert driver.rules.state.sizes() == {}


def test_the_count_goes_with_the_topic(with_offset):
    driver = with_offset
    starts_at(driver, 25)
    driver.step(TopicsDeleted(topics=frozenset({"t"})))
    assert lost(driver) == {}


def test_a_count_whose_deletion_failed_is_deleted_later(with_offset):
    driver = with_offset
    starts_at(driver, 25)
    driver.auto_ack = False
    driver.delete_offsets(("t", 0))
    driver.ack()
    driver.nack(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert lost(driver) == {"t-0": 15}
    driver.ack()
    assert lost(driver) == {}


def test_a_count_without_an_offset_is_deleted_when_the_shard_is_loaded(with_offset):
    driver = with_offset
    key = LostRecordsKey("gone", "t", 0)
    driver.log.append(GroupRecord(key, LostRecordsValue(5, 5, 0)))
    driver.rules.state.replay(driver.log[-1])
    driver.crash()
    driver.ack()
    assert lost(driver, "gone") == {}
    assert driver.log[-1] == GroupRecord(key, None)


def forget(driver, *topics):
    return driver.replies[driver.ask(ForgetLosses(reply_id=0, group_id=GROUP, topics=frozenset(topics)))]


def test_the_counts_are_forgotten_and_old_losses_are_not_counted_again(with_offset):
    driver = with_offset
    driver.commit(10, partition=1)
    starts_at(driver, 25)
    starts_at(driver, 11, partition=1)
    assert forget(driver, "u") == ForgetLossesReply(lost_count=0)
    assert forget(driver, "t") == ForgetLossesReply(lost_count=16)
    assert lost(driver) == {"t-0": 0, "t-1": 0}
    starts_at(driver, 27)
    assert lost(driver) == {"t-0": 2, "t-1": 0}
    assert forget(driver) == ForgetLossesReply(lost_count=2)


def test_a_refused_write_refuses_the_request(with_offset):
    driver = with_offset
    starts_at(driver, 25)
    driver.auto_ack = False
    reply_id = driver.ask(ForgetLosses(reply_id=0, group_id=GROUP, topics=frozenset()))
    driver.nack(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert driver.replies[reply_id] == ForgetLossesReply(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert lost(driver) == {"t-0": 15}
