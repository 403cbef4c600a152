"""Tests the positions of groups in a cluster that changes between the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from klamm import Admin, OffsetAndMetadata, OffsetAndTimestamp
from klamm.errors import GroupIdNotFoundError
from klamm.model import EARLIEST_TIMESTAMP, TopicPartition
from klamm_cli.status.group_positions import read_positions
from klamm_cli.status.unread_records import LogBounds

A, B, LEADERLESS = (TopicPartition("t", number) for number in range(3))


class MovingCluster:
    """Stands for an Admin. `moves` runs after the first answer about offsets of groups."""

    def __init__(self, committed: Mapping[str, dict[TopicPartition, int]]) -> None:
        self.committed = dict(committed)
        self.bounds = {A: LogBounds(0, 10), B: LogBounds(0, 10)}
        self.moves: Callable[[], None] | None = None
        self.asked: list[Any] = []

    def list_group_offsets(self, group_id: str, *, timeout_ms: int | None) -> dict[TopicPartition, OffsetAndMetadata]:
        self.asked.append(group_id)
        if group_id not in self.committed:
            raise GroupIdNotFoundError(group_id)
        found = {tp: OffsetAndMetadata(offset) for tp, offset in self.committed[group_id].items()}
        moves, self.moves = self.moves, None
        if moves is not None:
            moves()
        return found

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, timeout_ms: int | None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        self.asked.append(dict(wanted))
        return {
            tp: OffsetAndTimestamp(
                self.bounds[tp].start if timestamp == EARLIEST_TIMESTAMP else self.bounds[tp].end, -1
            )
            for tp, timestamp in wanted.items()
        }

    def admin(self) -> Admin:
        return cast(Admin, self)


def test_positions_have_each_groups_offsets_and_the_bounds_of_partitions_with_a_leader() -> None:
    cluster = MovingCluster({"g": {A: 1, LEADERLESS: 3}})
    found = read_positions(cluster.admin(), ["g", "deleted"], {A, B}, also=[B])
    assert found.committed == {"g": {A: 1, LEADERLESS: 3}}
    assert found.bounds == {A: LogBounds(0, 10), B: LogBounds(0, 10)}


def test_a_group_that_commits_and_deletes_what_it_read_has_lost_nothing() -> None:
    cluster = MovingCluster({"g": {A: 1}})

    def moves() -> None:
        cluster.committed["g"] = {A: 9}
        cluster.bounds[A] = LogBounds(9, 12)

    cluster.moves = moves
    found = read_positions(cluster.admin(), ["g"], {A})
    assert (found.committed["g"][A], found.bounds[A]) == (9, LogBounds(9, 12))


@pytest.mark.parametrize(("committed", "times"), [(4, 1), (3, 2), (-1, 1)])
def test_only_a_group_that_seems_to_have_lost_records_is_asked_again(committed: int, times: int) -> None:
    cluster = MovingCluster({"g": {A: committed}})
    cluster.bounds[A] = LogBounds(4, 10)
    assert read_positions(cluster.admin(), ["g"], {A}).committed == {"g": {A: committed}}
    assert cluster.asked.count("g") == times


def test_a_group_that_is_deleted_while_it_is_asked_again_is_left_out() -> None:
    cluster = MovingCluster({"g": {A: 1}})
    cluster.bounds[A] = LogBounds(4, 10)
    cluster.moves = cluster.committed.clear
    assert read_positions(cluster.admin(), ["g"], {A}).committed == {}
