"""Checkpoint positions, rate limits and packing of ranges into tasks."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from klamm.model import TopicPartition
from pyspark_klamm.offsets import (
    ROWS_PER_TASK_MIN,
    OffsetRange,
    Position,
    limited,
    pack,
    ranges_between,
)

partitions = st.builds(TopicPartition, st.sampled_from(["flights", "weather"]), st.integers(0, 5))
stretches = st.dictionaries(partitions, st.tuples(st.integers(0, 10**9), st.integers(0, 10**6)), max_size=8)


def test_a_position_survives_spark_s_checkpoint():
    position = Position(
        offsets={TopicPartition("flights", 1): 7, TopicPartition("flights", 0): 9, TopicPartition("weather", 0): 0},
        topic_ids={"flights": "aa", "weather": "bb"},
    )
    stored = json.loads(json.dumps(position.to_json(initial=True)))
    assert stored["offsets"] == {"flights": {"0": 9, "1": 7}, "weather": {"0": 0}}
    assert stored["initial"] is True
    assert Position.from_json(stored) == position


@given(stretches, st.integers(1, 10**6))
def test_a_limit_lets_through_just_what_it_allows(stretches, max_offsets):
    start = {tp: begin for tp, (begin, _) in stretches.items()}
    end = {tp: begin + size for tp, (begin, size) in stretches.items()}
    bounded = limited(start, end, max_offsets)
    assert all(start[tp] <= bounded[tp] <= end[tp] for tp in start)
    backlog = sum(end[tp] - start[tp] for tp in start)
    assert sum(bounded[tp] - start[tp] for tp in start) == min(backlog, max_offsets)


def test_a_limit_is_shared_in_proportion():
    start = {TopicPartition("t", 0): 0, TopicPartition("t", 1): 100}
    end = {TopicPartition("t", 0): 3_000, TopicPartition("t", 1): 1_100}
    assert limited(start, end, 400) == {TopicPartition("t", 0): 300, TopicPartition("t", 1): 200}


def test_a_partition_behind_its_start_gets_nothing():
    start = {TopicPartition("t", 0): 50, TopicPartition("t", 1): 0}
    end = {TopicPartition("t", 0): 10, TopicPartition("t", 1): 40}
    assert limited(start, end, 30)[TopicPartition("t", 1)] == 30


@given(stretches, st.integers(1, 16))
def test_tasks_cover_every_offset_once_and_evenly(stretches, max_tasks):
    start = {tp: begin for tp, (begin, _) in stretches.items()}
    ranges = ranges_between(start, {tp: begin + size for tp, (begin, size) in stretches.items()})
    tasks = pack(ranges, max_tasks)
    total = sum(each.size for each in ranges)
    assert len(tasks) <= max_tasks
    assert (len(tasks) == 0) == (total == 0)
    pieces = sorted((each.tp, each.start_offset, each.end_offset) for task in tasks for each in task)
    assert sum(end - begin for _, begin, end in pieces) == total
    for each in ranges:
        position = each.start_offset
        for tp, begin, end in pieces:
            if tp == each.tp:
                assert begin == position
                position = end
        assert position == each.end_offset
    if len(tasks) > 1:
        sizes = [sum(each.size for each in task) for task in tasks]
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) >= ROWS_PER_TASK_MIN


def test_few_rows_make_one_task():
    tps = [TopicPartition("t", number) for number in range(10)]
    assert len(pack([OffsetRange(tp=tp, start_offset=0, end_offset=100) for tp in tps], 8)) == 1
