"""Tests the records that a group has still to read, and those that it can never read."""

from __future__ import annotations

import pytest

from klamm.model import TopicPartition
from klamm_cli.status.unread_records import LogBounds, Unread, lost_by_partition, total_lag, unread

A, B, GONE = (TopicPartition("t", number) for number in range(3))


@pytest.mark.parametrize(
    ("committed", "start", "end", "lag", "lost"),
    [
        (0, 0, 0, 0, 0),
        (3, 0, 10, 7, 0),
        (10, 4, 10, 0, 0),
        (4, 4, 10, 6, 0),  # the log starts right at the group's next record
        (0, 5_025, 8_000, 2_975, 5_025),
        (3, 10, 10, 0, 7),  # everything was deleted
        (12, 4, 10, 0, 0),  # the group committed after the end was read
    ],
)
def test_unread_records_are_counted_as_lag_or_as_lost(
    committed: int, start: int, end: int, lag: int, lost: int
) -> None:
    assert unread(committed, LogBounds(start, end)) == Unread(lag=lag, lost=lost)


def test_a_partition_without_a_committed_offset_has_no_lost_records() -> None:
    assert unread(-1, LogBounds(5, 9)) is None


def test_lag_and_loss_leave_out_partitions_without_known_bounds() -> None:
    committed = {B: 1, A: 2, GONE: 7, TopicPartition("reset", 0): -1}
    bounds = {A: LogBounds(5, 9), B: LogBounds(3, 4), TopicPartition("reset", 0): LogBounds(3, 4)}
    assert total_lag(committed, bounds) == 4 + 1
    assert list(lost_by_partition(committed, bounds).items()) == [(A, 3), (B, 2)]
