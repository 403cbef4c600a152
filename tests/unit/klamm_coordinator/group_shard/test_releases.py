"""Tests which holds of retention a group releases when it is deleted, and when it holds again."""

from __future__ import annotations

import pytest

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_coordinator.group_shard import deletion, releases
from klamm_coordinator.offsets.lowest_offsets import LowestOffsets, TopicHold
from klamm_coordinator.records.released_hold_schema import ReleasedHoldKey, ReleasedHoldValue
from klamm_coordinator.records.schemas import GroupMetadataKey, GroupRecord, OffsetCommitKey
from klamm_coordinator.runtime.log_write import TxnProducer
from tests.unit.klamm_coordinator.conftest import GROUP

WEEK_MS = 7 * 24 * 3_600_000


def holds(driver, topic="t", group_id=GROUP, *, topic_id=None):
    """Returns True if retention of the topic waits for the group."""
    partition = TopicPartition(topic, 0)
    known_id = driver.topics.by_name[topic].topic_id
    found = LowestOffsets([TopicHold([partition], (group_id,), False, known_id if topic_id is None else topic_id)])
    found.add(group_id, driver.rules.state.offsets.of_group(group_id), driver.rules.releases.of_group(group_id))
    return partition in found.lowest


def stored(driver, group_id=GROUP):
    return set(driver.rules.state.released.of_group(group_id))


@pytest.fixture
def named(driver):
    """A shard with a group that has an offset in t, of which retention of the topics t and u waits for the group."""
    driver.topics_are(t=2, u=1, v=1)
    driver.holds_are(t=(GROUP, "other"), u=(GROUP,))
    driver.commit(10)
    return driver


def delete(driver, group_id=GROUP):
    (error,) = driver.replies[driver.delete_groups(group_id)].errors
    assert error is ErrorCode.NONE


def test_a_deleted_group_holds_no_topic_that_named_it(named):
    assert holds(named, "t")
    delete(named)
    assert not holds(named, "t")
    assert not holds(named, "u")
    assert holds(named, "t", "other"), "it has not begun"
    assert stored(named) == {"t", "u"}


def test_the_records_are_stored_before_the_group_is_gone(named):
    delete(named)
    topic_id = named.topics.by_name["t"].topic_id
    release = named.log.index(GroupRecord(ReleasedHoldKey(GROUP, "t"), ReleasedHoldValue(topic_id)))
    assert release < named.log.index(GroupRecord(GroupMetadataKey(GROUP), None))


def test_the_next_owner_of_the_shard_knows_it(named):
    delete(named)
    named.crash()
    assert not holds(named)
    assert not named.unsent


def test_a_deleted_group_that_no_topic_names_stores_nothing(driver):
    driver.topics_are(t=1)
    driver.commit(10)
    delete(driver)
    assert not stored(driver)
    driver.holds_are(t=(GROUP,))
    assert holds(driver), "the topic names the group after its deletion"


def test_a_later_topic_of_the_same_name_is_held(named):
    delete(named)
    assert holds(named, topic_id=b"another topic id")
    assert holds(named, topic_id=b""), "the broker is an older one"


def test_a_group_that_commits_again_holds_again(named):
    delete(named)
    named.commit(5, partition=1)
    assert holds(named), "partition 0 has no offset"
    assert not stored(named)
    named.advance(2 * WEEK_MS)
    assert not named.rules.has(GROUP), "its offset has expired"
    assert holds(named)


def test_a_group_with_a_member_holds_again(named):
    delete(named)
    (member,) = named.stable(1)
    assert holds(named)
    assert not stored(named)
    named.leave((member, None))
    assert holds(named)


def test_a_group_of_the_new_protocol_holds_again(named):
    delete(named)
    member = named.consumer("m")
    member.heartbeat()
    assert holds(named)
    assert not stored(named)
    member.leave()
    delete(named)
    assert not holds(named)


def test_a_group_that_is_joined_holds_before_its_member_is_stored(named):
    delete(named)
    named.new_member_id()
    assert holds(named)
    named.advance(1_000_000)
    assert not named.rules.has(GROUP)
    assert not holds(named), "the member never got a partition"


@pytest.mark.parametrize("committed", [True, False])
def test_offsets_of_a_transaction_count_when_it_commits(named, committed):
    delete(named)
    producer = TxnProducer(7, 0)
    named.txn_commit(3, producer)
    assert holds(named)
    assert stored(named)
    named.end_transaction(producer, committed=committed)
    assert holds(named) == committed
    assert bool(stored(named)) != committed


def test_a_group_whose_offsets_expire_still_holds(named):
    named.advance(2 * WEEK_MS)
    assert not named.rules.has(GROUP)
    assert holds(named)


def test_a_group_whose_single_offsets_are_deleted_still_holds(named):
    named.delete_offsets(("t", 0))
    assert holds(named)


@pytest.mark.parametrize("is_new", [False, True])
def test_a_group_whose_deletion_fails_holds_as_before(named, is_new):
    if is_new:
        delete(named)
        member = named.consumer("m")
        member.heartbeat()
        member.leave()
    named.auto_ack = False
    reply_id = named.delete_groups(GROUP)
    assert holds(named)
    while named.unsent:
        named.nack(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert named.replies[reply_id].errors != (ErrorCode.NONE,)
    assert named.rules.has(GROUP)
    assert holds(named)
    assert not stored(named)


def test_a_deletion_of_which_a_part_fails_releases_nothing(named, monkeypatch):
    monkeypatch.setattr(deletion, "TOMBSTONES_PER_WRITE", 2)
    named.auto_ack = False
    named.delete_groups(GROUP)
    named.ack()
    assert stored(named) == {"t", "u"}, "these are the first two records"
    for _ in range(len(named.unsent)):
        named.nack(ErrorCode.NOT_ENOUGH_REPLICAS)
    while named.unsent:
        named.ack()
    assert named.rules.has(GROUP)
    assert holds(named)
    assert not stored(named)


def test_a_deletion_that_is_stored_in_parts_is_not_taken_for_a_new_begin(named, monkeypatch):
    monkeypatch.setattr(deletion, "TOMBSTONES_PER_WRITE", 1)
    delete(named)
    assert stored(named) == {"t", "u"}
    assert not holds(named)


def test_a_deletion_that_is_stored_after_its_time_out_releases(named):
    named.auto_ack = False
    named.delete_groups(GROUP)
    named.advance(6_000)
    assert holds(named)
    while named.unsent:
        named.ack()
    assert not named.rules.has(GROUP)
    assert not holds(named)


def test_a_crash_within_a_deletion_leaves_the_group(named, monkeypatch):
    monkeypatch.setattr(deletion, "TOMBSTONES_PER_WRITE", 2)
    named.auto_ack = False
    named.delete_groups(GROUP)
    named.ack()
    assert stored(named) == {"t", "u"}
    named.crash()
    named.auto_ack = True
    named.ack()
    assert holds(named)
    assert not stored(named)


def test_a_topic_that_names_the_group_again_is_held(named):
    delete(named)
    named.holds_are(t=("other",), u=(GROUP,))
    assert stored(named) == {"u"}
    named.holds_are(t=(GROUP, "other"), u=(GROUP,))
    assert holds(named, "t")
    assert not holds(named, "u")


def test_a_topic_that_stops_naming_the_group_during_the_deletion_needs_no_record(named):
    named.auto_ack = False
    named.delete_groups(GROUP)
    named.holds_are(u=(GROUP,))
    while named.unsent:
        named.ack()
    assert stored(named) == {"u"}
    named.holds_are(t=(GROUP,), u=(GROUP,))
    assert holds(named, "t")


def test_a_deleted_topic_needs_no_record(named, monkeypatch):
    monkeypatch.setattr(releases, "RECORDS_PER_WRITE", 1)
    delete(named)
    named.topics_are(v=1)
    named.holds_are(v=(GROUP,))
    assert not stored(named)


def test_a_record_whose_deletion_failed_is_deleted_later(named):
    delete(named)
    named.auto_ack = False
    named.commit(5, partition=1)
    named.ack()
    named.nack(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert stored(named) == {"t", "u"}
    assert holds(named)
    named.ack()
    assert not stored(named)


def test_a_record_that_is_not_deleted_before_a_crash_is_deleted_after_it(named):
    delete(named)
    named.auto_ack = False
    named.commit(5, partition=1)
    named.ack()
    assert stored(named)
    named.crash()
    while named.unsent:
        named.ack()
    assert not stored(named)
    assert named.log[-1] == GroupRecord(ReleasedHoldKey(GROUP, "u"), None)
    assert any(record.key == OffsetCommitKey(GROUP, "t", 1) for record in named.log)
