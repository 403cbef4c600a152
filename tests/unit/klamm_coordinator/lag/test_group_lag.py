"""Tests what follows from a committed offset, the answer of the leader, and the histories."""

from __future__ import annotations

import pytest

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_coordinator.lag.group_lag import Committed, PartitionLag, Unread, partition_lag, uncounted_loss
from klamm_coordinator.lag.histories import GroupHistories

GROUP, TP = "billing", TopicPartition("orders", 3)
NOW = 1_700_000_000_000
UNREAD = Unread(log_start_offset=10, high_watermark=100, last_stable_offset=100, record_count=40)


def lag(
    offset: int | None = 60,
    unread: Unread = UNREAD,
    *,
    counted_lost: int = 0,
    counted_to: int = 0,
    histories: GroupHistories | None = None,
) -> PartitionLag:
    committed = None if offset is None else Committed(offset, NOW - 5_000)
    return partition_lag(
        GROUP,
        TP,
        committed,
        unread,
        counted_lost=counted_lost,
        counted_to=counted_to,
        histories=histories or GroupHistories(),
        now_ms=NOW,
    )


def test_the_lag_is_what_the_leader_counts_and_its_age_that_of_the_next_record() -> None:
    found = lag(unread=UNREAD._replace(next_timestamp_ms=NOW - 7_000))
    assert (found.lag, found.behind_ms, found.lost_count) == (40, 7_000, 0)
    assert found.unchanged_since_ms == NOW - 5_000


def test_a_group_that_has_read_everything_is_not_behind() -> None:
    found = lag(100, UNREAD._replace(record_count=0))
    assert (found.lag, found.behind_ms, found.catch_up_ms) == (0, 0, None)


def test_a_record_without_a_timestamp_has_no_age() -> None:
    assert lag().behind_ms is None
    assert lag(unread=UNREAD._replace(next_timestamp_ms=NOW + 60_000)).behind_ms == 0, "a clock that is ahead"


@pytest.mark.parametrize("offset", [None, -1, -2])
def test_without_an_offset_nothing_is_known(offset: int | None) -> None:
    found = lag(offset)
    assert (found.lag, found.behind_ms, found.lost_count, found.unchanged_since_ms) == (None, None, 0, None)


def test_without_an_answer_of_the_leader_the_counted_losses_are_known() -> None:
    found = lag(unread=Unread(ErrorCode.LEADER_NOT_AVAILABLE), counted_lost=5)
    assert (found.lag, found.behind_ms, found.lost_count) == (None, None, 5)


@pytest.mark.parametrize(
    ("committed", "start", "counted_to", "lost"),
    [(60, 10, 0, 0), (5, 10, 0, 5), (10, 10, 0, 0), (5, 10, 8, 2), (5, 10, 10, 0), (5, 10, 12, 0), (-1, 10, 0, 0)],
)
def test_records_are_lost_once(committed: int, start: int, counted_to: int, lost: int) -> None:
    assert uncounted_loss(committed, start, counted_to) == lost


def test_what_is_not_counted_yet_is_shown_with_what_is() -> None:
    found = lag(5, UNREAD._replace(log_start_offset=30), counted_lost=7, counted_to=20)
    assert found.lost_count == 17


def histories(consumed_per_s: int, produced_per_s: int) -> GroupHistories:
    made = GroupHistories()
    for ago_s in range(60, -1, -15):
        made.committed.note((GROUP, TP), NOW - 1_000 * ago_s, 10_000 - consumed_per_s * ago_s)
        made.ends.note(TP, NOW - 1_000 * ago_s, 20_000 - produced_per_s * ago_s)
    return made


def test_the_time_to_catch_up_follows_from_both_rates() -> None:
    found = lag(10_000, histories=histories(30, 10))
    assert (found.consumed_per_s, found.produced_per_s) == (30.0, 10.0)
    assert found.catch_up_ms == 2_000


@pytest.mark.parametrize("consumed_per_s", [10, 5, 0])
def test_a_group_that_comes_no_closer_never_catches_up(consumed_per_s: int) -> None:
    assert lag(10_000, histories=histories(consumed_per_s, 10)).catch_up_ms is None


def test_the_time_of_the_first_commit_of_an_offset_counts() -> None:
    found = lag(10_000, histories=histories(0, 10))
    assert found.unchanged_since_ms == NOW - 60_000
    newer = lag(10_001, histories=histories(0, 10))
    assert newer.unchanged_since_ms == NOW - 5_000, "the histories do not have it yet"
