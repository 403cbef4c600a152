"""Tests what follows for a group from what the coordinator tells about its partitions."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.admin.types import GroupLagDescription, GroupListing, PartitionLagDescription
from klamm.model import TopicPartition
from klamm_cli.status.group_lag import group_lag, in_words

NOW = 1_700_000_000_000
MINUTE, HOUR = 60_000, 3_600_000
GROUP = GroupListing(group_id="g", protocol_type="consumer", state="Empty", type="classic")
BEHIND = {"lag": 10, "behind_ms": 4 * MINUTE, "unchanged_since_ms": NOW - HOUR}


def described(*partitions: dict[str, Any]) -> GroupLagDescription:
    return GroupLagDescription(
        group_id="g",
        time_ms=NOW,
        partitions=tuple(
            PartitionLagDescription(tp=TopicPartition("t", number), **values)
            for number, values in enumerate(partitions)
        ),
    )


def test_a_group_is_as_far_behind_as_its_oldest_record() -> None:
    lag = group_lag(GROUP, described(BEHIND, {"lag": 5, "behind_ms": 7_000}, {"lag": 0, "behind_ms": 0}, {}))
    assert (lag.group_id, lag.type, lag.state) == ("g", "classic", "Empty")
    assert (lag.lag, lag.partitions, lag.behind_ms) == (15, 3, 4 * MINUTE)


def test_the_first_deletion_of_unread_records_counts() -> None:
    read = {"lag": 0, "next_deletion_ms": NOW + 1}
    later, sooner = ({**BEHIND, "next_deletion_ms": NOW + after_ms} for after_ms in (2 * HOUR, HOUR))
    lag = group_lag(GROUP, described(read, later, sooner, BEHIND))
    assert lag.deletion_ms == HOUR
    assert lag.doomed == (TopicPartition("t", 2), TopicPartition("t", 1))
    assert group_lag(GROUP, described(BEHIND)).deletion_ms is None
    assert group_lag(GROUP, described({**BEHIND, "next_deletion_ms": NOW - 5})).deletion_ms == 0


def test_a_group_stands_since_the_last_change_of_an_offset_with_unread_records() -> None:
    moving = {"lag": 1, "unchanged_since_ms": NOW - MINUTE}
    read = {"lag": 0, "unchanged_since_ms": NOW}
    assert group_lag(GROUP, described(BEHIND, read)).unchanged_ms == HOUR
    assert group_lag(GROUP, described(BEHIND, moving)).unchanged_ms == MINUTE
    assert group_lag(GROUP, described(read)).unchanged_ms is None


def test_losses_are_listed_by_partition() -> None:
    lag = group_lag(GROUP, described({"lost_count": 3}, BEHIND, {**BEHIND, "lost_count": 4}))
    assert lag.lost == {TopicPartition("t", 0): 3, TopicPartition("t", 2): 4}
    assert lag.lost_count == 7


RATES = {"consumed_per_s": 10.0, "produced_per_s": 5.0}


@pytest.mark.parametrize(
    ("partitions", "words"),
    [
        ([], "has read everything"),
        ([{"lag": 0, "lost_count": 1}], "has read everything, lost 1 record"),
        ([BEHIND], "10 records behind, the oldest 4 min old"),
        ([{**BEHIND, **RATES, "catch_up_ms": 2_000}], "10 records behind, the oldest 4 min old, catches up in 2.0 s"),
        ([{**BEHIND, **RATES}], "10 records behind, the oldest 4 min old, comes no closer to the end"),
        (
            [{**BEHIND, "next_deletion_ms": NOW + 20 * MINUTE}],
            "10 records behind, the oldest 4 min old, retention deletes unread records in 20 min",
        ),
        ([{**BEHIND, "next_deletion_ms": NOW + 24 * HOUR}], "10 records behind, the oldest 4 min old"),
        (
            [{**BEHIND, **RATES, "catch_up_ms": 2_000}, {**BEHIND, "consumed_per_s": 1.0}],
            "20 records behind, the oldest 4 min old",
        ),
    ],
)
def test_a_line_tells_what_a_group_has_to_read(partitions: list[dict[str, Any]], words: str) -> None:
    assert in_words(described(*partitions)) == words
