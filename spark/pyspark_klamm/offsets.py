"""The position of a streaming query in its checkpoint, and how the query continues from it. Pure.

The checkpoint holds this JSON, whose `offsets` read like those of Spark's Kafka source:

    {"offsets": {"flights": {"0": 120, "1": 98}}, "topic_ids": {"flights": "<uuid>"}}

The first offset of a query is not checkpointed by Spark for Python sources: if its first batch failed, a restart would
ask for a new initial offset, and "latest" would skip what the failed batch had covered. So the initial offset is marked
(`"initial": true`), and the end of every batch that starts there carries it along as `start`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from klamm.model import TopicPartition

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffset:
    """The position of a query in all its partitions."""

    offsets: Offsets
    """The next offset of each partition."""
    topic_ids: Mapping[str, str]
    """The ids of the topics of these offsets, by name. A topic that is deleted and created again has another id."""

    def to_json(self, **marks: Any) -> dict[str, Any]:
        """Returns the form that Spark stores. `marks` are added to it unchanged."""
        nested: dict[str, dict[str, int]] = {}
        for tp, offset in sorted(self.offsets.items()):
            nested.setdefault(tp.topic, {})[str(tp.partition)] = offset
        return {"offsets": nested, "topic_ids": dict(sorted(self.topic_ids.items())), **marks}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> SourceOffset:
        """Returns the position of a stored form, and ignores its marks."""
        offsets = {
            TopicPartition(topic, int(partition)): offset
            for topic, partitions in stored["offsets"].items()
            for partition, offset in partitions.items()
        }
        return cls(offsets=offsets, topic_ids=stored["topic_ids"])

    def without(self, topics: set[str]) -> SourceOffset:
        """Returns this position without the given topics."""
        return self.only(lambda tp: tp.topic not in topics)

    def only(self, keep: Callable[[TopicPartition], bool]) -> SourceOffset:
        """Returns this position in the partitions for which `keep` is true."""
        offsets = {tp: offset for tp, offset in self.offsets.items() if keep(tp)}
        topics = {tp.topic for tp in offsets}
        return SourceOffset(
            offsets=offsets,
            topic_ids={topic: topic_id for topic, topic_id in self.topic_ids.items() if topic in topics},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """A range of offsets in one partition."""

    tp: TopicPartition
    start_offset: int
    end_offset: int
    """The offset after the last one of the range."""

    @property
    def size(self) -> int:
        """The number of offsets in the range. There may be fewer records."""
        return self.end_offset - self.start_offset

    def within(self, first: int | None, end: int | None) -> OffsetRange | None:
        """Returns the part of the range from `first` to before `end`, or None if it is empty. A bound of None is no
        bound."""
        start_offset = self.start_offset if first is None else max(self.start_offset, first)
        end_offset = self.end_offset if end is None else min(self.end_offset, end)
        if start_offset >= end_offset:
            return None
        return OffsetRange(tp=self.tp, start_offset=start_offset, end_offset=end_offset)


def ranges_between(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """Returns the ranges between two positions, without empty ones."""
    return [
        OffsetRange(tp=tp, start_offset=start[tp], end_offset=end_offset)
        for tp, end_offset in sorted(end.items())
        if end_offset > start[tp]
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """The offsets at which a query continues, and the records that it can no longer read."""

    offsets: Offsets
    """The offset to begin at, for every partition of the end."""
    finish: SourceOffset
    """The end, without topics that are gone."""
    losses: tuple[str, ...]
    """One text for each loss of records."""


def continuation(begin: SourceOffset, finish: SourceOffset, earliest: Offsets) -> Continuation:
    """Returns how a query that was at `begin` reads up to `finish`, whose partitions have no records before `earliest`.

    New partitions and topics are read from the start. As in Spark's Kafka source, losses are topics that were deleted
    or created again, logs that were cut at either end, and new partitions whose first records are gone already."""
    recreated = {
        topic for topic, topic_id in finish.topic_ids.items() if begin.topic_ids.get(topic, topic_id) != topic_id
    }
    gone_topics = begin.topic_ids.keys() - finish.topic_ids.keys()
    losses = [f"topic {topic!r} was deleted and created again" for topic in sorted(recreated)]
    losses += [f"topic {topic!r} was deleted" for topic in sorted(gone_topics)]
    losses += [
        f"{tp} is gone"
        for tp in sorted(begin.offsets.keys() - finish.offsets.keys())
        if tp.topic not in gone_topics | recreated
    ]
    offsets = {}
    for tp, end in sorted(finish.offsets.items()):
        known = begin.offsets.get(tp) if tp.topic not in recreated else None
        offsets[tp] = earliest[tp] if known is None else max(known, earliest[tp])
        if known is None:
            if earliest[tp] > 0 and tp.topic not in recreated:
                losses.append(f"{tp} is new and begins at offset {earliest[tp]}, not 0")
        elif known < earliest[tp]:
            losses.append(deleted_unread(tp, known, earliest[tp], end))
        elif end < known:
            losses.append(f"{tp} ends at offset {end}, but the query had read up to offset {known}")
    return Continuation(offsets=offsets, finish=finish, losses=tuple(losses))


def deleted_unread(tp: TopicPartition, position: int, log_start_offset: int, log_end_offset: int) -> str:
    """Returns the text about records that were deleted before a query at `position` read them."""
    return (
        f"{tp}: the query was at offset {position}, but the log starts at {log_start_offset} and ends at"
        f" {log_end_offset}: {log_start_offset - position} records were deleted before the query read them"
    )


def went_back(known: SourceOffset, latest: SourceOffset) -> list[TopicPartition]:
    """Returns the partitions that end before an offset that was reached. Either the answer is outdated, or the log was
    cut."""
    return sorted(
        tp
        for tp, offset in latest.offsets.items()
        if offset < known.offsets.get(tp, 0) and known.topic_ids.get(tp.topic) == latest.topic_ids.get(tp.topic)
    )
