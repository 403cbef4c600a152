"""Tests how ranges of offsets become tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm.model import TopicPartition
from pyspark_klamm.offsets import OffsetRange, ranges_between
from pyspark_klamm.source_options import TaskLimits
from pyspark_klamm.task_packing import ROWS_PER_TASK_MIN, pack

partitions = st.builds(TopicPartition, st.sampled_from(["flights", "weather"]), st.integers(0, 5))
stretches = st.dictionaries(partitions, st.tuples(st.integers(0, 10**9), st.integers(0, 10**6)), max_size=8)


@given(stretches, st.integers(1, 16))
def test_tasks_cover_every_offset_once_and_evenly(stretches, max_tasks):
    start = {tp: begin for tp, (begin, _) in stretches.items()}
    ranges = ranges_between(start, {tp: begin + size for tp, (begin, size) in stretches.items()})
    tasks = pack(ranges, TaskLimits(max_tasks=max_tasks))
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
    assert len(pack([OffsetRange(tp=tp, start_offset=0, end_offset=100) for tp in tps], TaskLimits(max_tasks=8))) == 1


def sizes(limits: TaskLimits, *ranges: int) -> list[int]:
    todo = [
        OffsetRange(tp=TopicPartition("t", number), start_offset=0, end_offset=size)
        for number, size in enumerate(ranges)
    ]
    return [sum(each.size for each in task) for task in pack(todo, limits)]


def test_min_partitions_overrides_the_smaller_number_of_packed_tasks():
    assert sizes(TaskLimits(max_tasks=2, min_tasks=4), 10, 30) == [10, 10, 10, 10]
    assert sizes(TaskLimits(max_tasks=2, min_tasks=4), 3) == [1, 1, 1]


def test_no_task_has_more_than_max_records_per_partition():
    assert sizes(TaskLimits(max_tasks=1, max_records_per_task=10), 21, 4) == [9, 8, 8]
