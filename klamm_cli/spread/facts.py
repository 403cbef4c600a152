"""The facts about a spread, and the names that it uses. Pure.

The state of a spread is in the cluster. The command itself keeps nothing.

    offsets of the own group in the source   where the copy continues; their metadata have the ids of both topics
    offsets of the own group in the target   the boundary; all of them are stored by one commit
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from klamm.model import TopicPartition
from klamm.offsets import OffsetAndMetadata


@dataclass(frozen=True, slots=True)
class Names:
    """The topics of a spread, and the names that follow from them."""

    source: str
    target: str

    @property
    def group_id(self) -> str:
        """The group that stores the state of the spread."""
        return f"klamm-spread-{self.source}-{self.target}"

    def transactional_id(self, partition: int) -> str:
        """The transactional.id of the copier of a source partition. A second copier with it fences the first one."""
        return f"{self.group_id}-{partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """A topic at one moment. The offsets are by partition number."""

    topic_id: uuid.UUID
    starts: Mapping[int, int]
    """The log start offsets."""
    ends: Mapping[int, int]
    """The high watermarks."""
    stable_ends: Mapping[int, int]
    """The last stable offsets. They are smaller than the high watermarks while a transaction is open."""
    internal: bool = False

    @property
    def is_empty(self) -> bool:
        return all(self.starts[number] >= end for number, end in self.ends.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadFacts:
    """The source, the target and the offsets of the own group at one moment."""

    names: Names
    partitions: int
    """The number of partitions that the user wants."""
    source: TopicFacts
    target: TopicFacts | None = None
    """The target, or None if it does not exist."""
    offsets: Mapping[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    """The committed offsets of the own group."""

    @property
    def copied(self) -> dict[int, int]:
        """The offsets after the last copied record, by source partition. Partitions without a mark are left out."""
        mark = self.mark
        return {
            tp.partition: offset.offset
            for tp, offset in self.offsets.items()
            if tp.topic == self.names.source and offset.metadata == mark
        }

    @property
    def boundary(self) -> dict[int, int]:
        """The offsets after the last copied record in the target, by partition. Empty before the cut."""
        mark = self.mark
        return {
            tp.partition: offset.offset
            for tp, offset in self.offsets.items()
            if tp.topic == self.names.target and offset.metadata == mark
        }

    @property
    def mark(self) -> str:
        """The metadata of the own group's offsets. A topic that was deleted and created again has another id."""
        return "" if self.target is None else make_mark(self.source.topic_id, self.target.topic_id)

    @property
    def left(self) -> int:
        """The number of offsets that are still to be copied, up to the last stable offsets."""
        copied, source = self.copied, self.source
        return sum(_left(copied.get(number, source.starts[number]), end) for number, end in source.stable_ends.items())

    @property
    def late(self) -> int:
        """The number of offsets that the source has beyond the copied ones. After the cut, producers wrote them too
        late."""
        copied = self.copied
        return sum(_left(copied[number], end) for number, end in self.source.ends.items() if number in copied)


def make_mark(source_id: uuid.UUID, target_id: uuid.UUID) -> str:
    return f"klamm-spread {source_id} {target_id}"


def marked(topic: str, offsets: Mapping[int, int], mark: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns offsets with the mark, as the own group stores them."""
    return {TopicPartition(topic, number): OffsetAndMetadata(offset, mark) for number, offset in offsets.items()}


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def _left(position: int, end: int) -> int:
    return max(0, end - position)
