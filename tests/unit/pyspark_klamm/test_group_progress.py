"""Tests when a stream's progress is committed to a group, and how failed commits are handled."""

from __future__ import annotations

from concurrent.futures import Future

from klamm.errors import CommitFailedError
from klamm.model import TopicPartition
from pyspark_klamm.group_progress import GroupProgress

TP = TopicPartition("flights", 0)


class Coordinator:
    """A coordinator that accepts commits and answers them when the test permits it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.pending: list[Future[None]] = []

    def commit(self, group_id, offsets) -> Future[None]:
        self.asked.append((group_id, offsets[TP]))
        self.pending.append(Future())
        return self.pending[-1]


def test_progress_is_committed_one_at_a_time_and_only_if_it_is_new():
    cluster, group = Coordinator(), GroupProgress("g")
    for offset in (1, 2, 3):
        group.advance(cluster, {TP: offset})
    assert cluster.asked == [("g", 1)]
    cluster.pending[0].set_result(None)
    group.advance(cluster, {TP: 3})
    cluster.pending[1].set_result(None)
    group.finish(cluster, {TP: 3})
    assert cluster.asked == [("g", 1), ("g", 3)]


def test_a_failed_progress_commit_is_retried_and_logged_once(caplog):
    cluster, group = Coordinator(), GroupProgress("g")
    for _ in range(3):
        group.advance(cluster, {TP: 1})
        cluster.pending[-1].set_exception(CommitFailedError("the group has members"))
    group.finish(cluster, {TP: 1})
    assert len(cluster.asked) == 4
    assert not cluster.pending[-1].done()
    assert caplog.text.count("the group has members") == 1
