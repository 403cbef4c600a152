"""Packs ranges of offsets into tasks. Pure.

Spark's Kafka source makes a task of each partition. A task costs a Python source some 20 ms of CPU, so small ranges
share a task here and large ranges are cut, unless the user asks for more tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark_klamm.offsets import OffsetRange
from pyspark_klamm.source_options import TaskLimits

ROWS_PER_TASK_MIN: Final = 5_000
"""The fewest rows of a task. With fewer rows, a further Python task costs more than it saves."""


def pack(ranges: Iterable[OffsetRange], limits: TaskLimits) -> list[list[OffsetRange]]:
    """Distributes the ranges over tasks of even size, and cuts a range where a task is full."""
    todo = [offset_range for offset_range in ranges if offset_range.size > 0]
    total = sum(offset_range.size for offset_range in todo)
    if not total:
        return []
    task_count = _task_count(total, limits)
    tasks: list[list[OffsetRange]] = [[] for _ in range(task_count)]
    done = 0
    for offset_range in todo:
        start = offset_range.start_offset
        while start < offset_range.end_offset:
            index = done * task_count // total
            # The first offset (counted over all ranges) that belongs to the next task.
            boundary = -(-(index + 1) * total // task_count)
            end = min(offset_range.end_offset, start + boundary - done)
            tasks[index].append(OffsetRange(tp=offset_range.tp, start_offset=start, end_offset=end))
            done += end - start
            start = end
    return tasks


def _task_count(total: int, limits: TaskLimits) -> int:
    count = max(1, min(limits.max_tasks, total // ROWS_PER_TASK_MIN), limits.min_tasks)
    if limits.max_records_per_task is not None:
        count = max(count, -(-total // limits.max_records_per_task))
    return min(count, total)
