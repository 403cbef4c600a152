"""Tests checkpoint positions, and how a query continues from one."""

from __future__ import annotations

import json

import pytest

from klamm.model import TopicPartition
from pyspark_klamm.offsets import OffsetRange, SourceOffset, continuation, deleted_unread, went_back

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def position(offsets: dict[TopicPartition, int], **topic_ids: str) -> SourceOffset:
    return SourceOffset(offsets=offsets, topic_ids={tp.topic: topic_ids.get(tp.topic, "id") for tp in offsets})


def test_a_position_survives_spark_s_checkpoint():
    position = SourceOffset(
        offsets={TopicPartition("flights", 1): 7, TopicPartition("flights", 0): 9, TopicPartition("weather", 0): 0},
        topic_ids={"flights": "aa", "weather": "bb"},
    )
    stored = json.loads(json.dumps(position.to_json(initial=True)))
    assert stored["offsets"] == {"flights": {"0": 9, "1": 7}, "weather": {"0": 0}}
    assert stored["initial"] is True
    assert SourceOffset.from_json(stored) == position


def test_a_query_continues_at_its_position_and_reads_new_partitions_from_the_start():
    found = continuation(position({A0: 5}), position({A0: 9, A1: 4, B0: 2}), {A0: 3, A1: 0, B0: 0})
    assert found.offsets == {A0: 5, A1: 0, B0: 0}
    assert found.losses == ()


CUT = "a-0 ends at offset 4, but the query had read up to offset 5"


@pytest.mark.parametrize(
    ("begin", "finish", "earliest", "offsets", "losses"),
    [
        (position({A0: 5}), position({A0: 9}), {A0: 7}, {A0: 7}, [deleted_unread(A0, 5, 7, 9)]),
        (position({A0: 5}), position({A0: 4}), {A0: 0}, {A0: 5}, [CUT]),
        (position({A0: 5}), position({A0: 5}, a="new"), {A0: 0}, {A0: 0}, ["topic 'a' was deleted and created again"]),
        (position({A0: 5, B0: 1}), position({A0: 5}), {A0: 0}, {A0: 5}, ["topic 'b' was deleted"]),
        (position({A0: 5, A1: 1}), position({A0: 5}), {A0: 0}, {A0: 5}, ["a-1 is gone"]),
        (position({A0: 5}), position({A0: 5, A1: 9}), {A0: 0, A1: 3}, {A0: 5, A1: 3}, ["a-1 is new and begins at offset 3, not 0"]),  # noqa: E501
        (position({A0: 5}), position({A0: 9}, a="new"), {A0: 2}, {A0: 2}, ["topic 'a' was deleted and created again"]),
    ],
)  # fmt: skip
def test_records_that_can_no_longer_be_read_are_reported_as_losses(begin, finish, earliest, offsets, losses):
    found = continuation(begin, finish, earliest)
    assert found.offsets == offsets
    assert list(found.losses) == losses


def test_records_deleted_before_they_were_read_are_counted():
    text = deleted_unread(A0, 5, 7, 9)
    assert text.startswith("a-0: the query was at offset 5, but the log starts at 7 and ends at 9: 2 records were")


def test_a_partition_whose_end_went_back_is_found():
    known = position({A0: 5, A1: 5, B0: 5})
    assert went_back(known, position({A0: 5, A1: 4, B0: 1}, b="new")) == [A1]


def test_an_offset_range_is_cut_to_its_bounds():
    whole = OffsetRange(tp=A0, start_offset=5, end_offset=9)
    assert whole.within(None, None) == whole
    assert whole.within(7, 20) == OffsetRange(tp=A0, start_offset=7, end_offset=9)
    assert whole.within(0, 6) == OffsetRange(tp=A0, start_offset=5, end_offset=6)
    assert whole.within(9, None) is None
