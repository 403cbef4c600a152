"""The offsets of a shard: those that are durable, and which ones are being written.

    committed   what acknowledged records say; readers see only this
    in flight   how many writes that are not decided touch an offset; who deletes must delete those too

Invariant: no group with an empty dict of offsets is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from klamm.model import TopicPartition
from klamm_coordinator.records.schemas import OffsetCommitKey, OffsetCommitValue, Record

_NONE: Mapping[TopicPartition, OffsetCommitValue] = {}


class OffsetStore:
    """Changed by `replay` (durable) and by `begin`/`end` of writes (in flight), by nothing else."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, OffsetCommitValue]] = {}
        self._in_flight: dict[str, Counter[TopicPartition]] = {}

    def __eq__(self, other: object) -> bool:
        """Whether the same offsets are durable."""
        return isinstance(other, OffsetStore) and self._committed == other._committed

    __hash__ = None  # type: ignore[assignment]

    def group_ids(self) -> Iterable[str]:
        """Groups with durable offsets."""
        return self._committed.keys()

    def count(self) -> int:
        """How many offsets are durable."""
        return sum(map(len, self._committed.values()))

    def of_group(self, group_id: str) -> Mapping[TopicPartition, OffsetCommitValue]:
        """The durable offsets of a group."""
        return self._committed.get(group_id, _NONE)

    def is_in_flight(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether a write that is not decided touches this offset."""
        return partition in self._in_flight.get(group_id, ())

    def has_any(self, group_id: str) -> bool:
        """Whether the group has offsets, durable or in flight."""
        return group_id in self._committed or group_id in self._in_flight

    def partitions_to_delete(self, group_id: str) -> list[TopicPartition]:
        """Every partition of the group of which an offset is, or may become, durable."""
        return sorted({*self.of_group(group_id), *self._in_flight.get(group_id, ())})

    def replay(self, group_id: str, partition: TopicPartition, value: OffsetCommitValue | None) -> None:
        """An acknowledged record: the one way durable offsets change."""
        offsets = self._committed.get(group_id)
        if value is not None:
            if offsets is None:
                offsets = self._committed[group_id] = {}
            offsets[partition] = value
        elif offsets is not None:
            offsets.pop(partition, None)
            if not offsets:
                del self._committed[group_id]

    def begin(self, records: Iterable[Record]) -> None:
        """These records are on their way."""
        for key, _ in records:
            if isinstance(key, OffsetCommitKey):
                counter = self._in_flight.setdefault(key.group_id, Counter())
                counter[TopicPartition(key.topic, key.partition)] += 1

    def end(self, records: Iterable[Record]) -> None:
        """They are decided, one way or the other."""
        for key, _ in records:
            if isinstance(key, OffsetCommitKey):
                counter = self._in_flight[key.group_id]
                partition = TopicPartition(key.topic, key.partition)
                counter[partition] -= 1
                if not counter[partition]:
                    del counter[partition]
                if not counter:
                    del self._in_flight[key.group_id]
