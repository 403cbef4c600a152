"""Tests expiring offsets (KIP-211). The default retention is a week, checked every ten minutes."""

from __future__ import annotations

from klamm.errors import ErrorCode
from klamm_coordinator.group_shard import deletion
from klamm_coordinator.records.schemas import (
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


def test_offsets_of_an_empty_group_expire_a_week_after_its_last_member_left(driver):
    (member,) = driver.stable(1, session_timeout_ms=1_800_000)
    driver.commit(1, generation_id=1, member_id=member)
    driver.advance(20 * MINUTE_MS)
    driver.leave((member, None))

    driver.advance(7 * DAY_MS - 1)
    assert driver.offset() == 1

    driver.advance(10 * MINUTE_MS)
    assert driver.offset() == -1
    assert driver.rules.classic.groups == {}
    assert driver.rules.state.groups == {}


def test_offsets_of_a_group_without_members_ever_expire_a_week_after_their_commit(driver):
    driver.commit(1)
    driver.advance(3 * DAY_MS)
    driver.commit(2, partition=1)

    driver.advance(4 * DAY_MS + 10 * MINUTE_MS)
    assert (driver.offset(), driver.offset(partition=1)) == (-1, 2)

    driver.advance(3 * DAY_MS)
    assert driver.rules.classic.groups == {}


def test_offsets_of_topics_without_a_subscribed_member_expire(driver):
    (member,) = driver.stable(1, session_timeout_ms=1_800_000)
    driver.commit(1, generation_id=1, member_id=member)
    driver.commit(1, generation_id=1, member_id=member, topic="old")
    for _ in range(7 * 24 * 3 + 1):
        driver.advance(20 * MINUTE_MS)
        driver.heartbeat(1, member)

    assert (driver.offset(), driver.offset("old")) == (1, -1)


def test_an_explicit_expire_timestamp_is_applied(driver):
    key = OffsetCommitKey("legacy", "t", 0)
    value = OffsetCommitValue(1, -1, "", driver.now.wall_ms, driver.now.wall_ms + 5 * MINUTE_MS)
    driver.log.append(GroupRecord(key, value))
    driver.rules.state.replay(driver.log[-1])
    driver.crash()

    driver.advance(10 * MINUTE_MS)

    assert driver.rules.classic.groups == {}


def test_the_expiry_of_many_offsets_is_spread_over_several_turns(driver, monkeypatch):
    monkeypatch.setattr(deletion, "OFFSETS_PER_EXPIRY_TURN", 5)
    for number in range(6):
        for partition in range(3):
            driver.commit(1, group_id=f"g{number}", partition=partition)
    driver.advance(7 * DAY_MS - 1)
    due_ms = driver.shard.next_deadline_ms()

    left = []
    while len(left) < 4:
        driver.advance(driver.shard.next_deadline_ms() - driver.now.monotonic_ms)
        left.append(sorted(driver.rules.classic.groups))

    assert left == [["g2", "g3", "g4", "g5"], ["g4", "g5"], [], []]
    assert driver.now.monotonic_ms >= due_ms + 10 * MINUTE_MS


def test_a_tombstone_that_cannot_be_stored_is_written_again(driver):
    driver.commit(1)
    driver.auto_ack = False
    driver.advance(7 * DAY_MS)
    driver.nack(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert driver.offset() == 1

    driver.advance(10 * MINUTE_MS)
    driver.ack()

    assert driver.rules.classic.groups == {}
