"""Tests which shards are asked about a hold, and what their answers mean together."""

from __future__ import annotations

from klamm.model import coordinator_shard
from klamm_broker.log.cleaning.hold_groups import ShardAnswer, lowest_of, shards_of
from klamm_broker.log.cleaning.retention_hold import NO_GROUP, LowOffset

COUNT = 4
A = coordinator_shard("a", COUNT)


def answer(*shards: int, lowest: LowOffset = NO_GROUP) -> ShardAnswer:
    return ShardAnswer(frozenset(shards), lowest)


def test_named_groups_are_asked_for_in_their_shards_and_all_groups_in_every_shard() -> None:
    assert shards_of(("a",), COUNT) == {A}
    assert shards_of(("a", "*"), COUNT) == shards_of(("*",), COUNT) == {0, 1, 2, 3}
    assert shards_of(("a",), 0) == shards_of(("*",), 0) == frozenset()


def test_the_lowest_offset_of_all_answers_counts() -> None:
    answers = [
        answer(0, 1, lowest=LowOffset(7, "a")),
        answer(2, lowest=LowOffset(5, "b")),
        answer(3),
    ]
    assert lowest_of(("*",), COUNT, answers) == LowOffset(5, "b")


def test_a_shard_without_an_answer_does_not_count_as_a_shard_without_groups() -> None:
    answers = [answer(0, 1, 2, lowest=LowOffset(7, "a"))]
    assert lowest_of(("*",), COUNT, answers) is None
    assert lowest_of(("*",), COUNT, []) is None
    assert lowest_of(("a",), COUNT, [answer(*{0, 1, 2, 3} - {A})]) is None
    assert lowest_of(("a",), COUNT, [answer(A, lowest=LowOffset(3, "a"))]) == LowOffset(3, "a")


def test_without_groups_nothing_is_held() -> None:
    assert lowest_of(("*",), COUNT, [answer(0, 1, 2, 3)]) == NO_GROUP


def test_before_the_first_commit_of_the_cluster_a_named_group_holds_every_record() -> None:
    assert lowest_of(("*",), 0, []) == NO_GROUP
    assert lowest_of(("b", "*", "a"), 0, []) == LowOffset(0, "a")
