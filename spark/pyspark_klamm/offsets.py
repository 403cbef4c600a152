"""What a streaming query remembers of its place, and how a range of offsets becomes tasks. Pure.

The checkpoint holds this JSON, whose `offsets` read like those of Spark's Kafka source:

    {"offsets": {"flights": {"0": 120, "1": 98}}, "topic_ids": {"flights": "<uuid>"}}

The first offset of a query is not checkpointed by Spark for Python sources: if its first batch failed, a restart would
ask for an initial offset anew, and "latest" would skip what the failed batch had covered. So the initial offset is
marked (`"initial": true`), and the end of every batch that starts there carries it along as `start`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from klamm.model import TopicPartition

Offsets = Mapping[TopicPartition, int]

ROWS_PER_TASK_MIN: Final = 5_000
"""Below this a further Python task costs more than it saves (some 20 ms of CPU each)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place in all partitions of a query."""

    offsets: Offsets
    """The next offset of each partition."""
    topic_ids: Mapping[str, str]
    """The topics these offsets speak of; a topic created anew under the same name has another id."""

    def to_json(self, **marks: Any) -> dict[str, Any]:
        """The form that Spark stores; `marks` are added as they are."""
        nested: dict[str, dict[str, int]] = {}
        for tp, offset in sorted(self.offsets.items()):
            nested.setdefault(tp.topic, {})[str(tp.partition)] = offset
        return {"offsets": nested, "topic_ids": dict(sorted(self.topic_ids.items())), **marks}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Position:
        """The position of a stored form, whatever marks it has."""
        offsets = {
            TopicPartition(topic, int(partition)): offset
            for topic, partitions in stored["offsets"].items()
            for partition, offset in partitions.items()
        }
        return cls(offsets=offsets, topic_ids=stored["topic_ids"])


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """A stretch of one partition."""

    tp: TopicPartition
    start_offset: int
    end_offset: int
    """Exclusive."""

    @property
    def size(self) -> int:
        """How many offsets; of records there may be fewer."""
        return self.end_offset - self.start_offset


def ranges_between(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """What lies between two places, without the partitions where nothing does."""
    return [
        OffsetRange(tp=tp, start_offset=start[tp], end_offset=end_offset)
        for tp, end_offset in sorted(end.items())
        if end_offset > start[tp]
    ]


def limited(start: Offsets, end: Offsets, max_offsets: int) -> dict[TopicPartition, int]:
    """An end at most `max_offsets` after `start`, the allowance shared in proportion to what each partition has.

    Spark's Kafka source does the same. At least one offset is let through when there is any."""
    backlog = {tp: max(0, end[tp] - start[tp]) for tp in end}
    total = sum(backlog.values())
    if total <= max_offsets:
        return dict(end)
    limits = {tp: start[tp] + behind * max_offsets // total for tp, behind in backlog.items()}
    # Rounding down leaves fewer offsets over than there are partitions: the longest backlogs get one each.
    left = max_offsets - sum(limits[tp] - start[tp] for tp in limits)
    for tp in sorted(backlog, key=lambda each: (-backlog[each], each))[:left]:
        limits[tp] = min(end[tp], limits[tp] + 1)
    return limits


def pack(ranges: Iterable[OffsetRange], max_tasks: int) -> list[list[OffsetRange]]:
    """Shares the ranges out over at most `max_tasks` tasks of even size, cutting a range where a task is full."""
    todo = [each for each in ranges if each.size > 0]
    total = sum(each.size for each in todo)
    if not total:
        return []
    task_count = max(1, min(max_tasks, total // ROWS_PER_TASK_MIN))
    tasks: list[list[OffsetRange]] = [[] for _ in range(task_count)]
    done = 0
    for each in todo:
        start = each.start_offset
        while start < each.end_offset:
            index = done * task_count // total
            # The first offset (counted over all ranges) that belongs to the next task.
            boundary = -(-(index + 1) * total // task_count)
            end = min(each.end_offset, start + boundary - done)
            tasks[index].append(OffsetRange(tp=each.tp, start_offset=start, end_offset=end))
            done += end - start
            start = end
    return tasks
