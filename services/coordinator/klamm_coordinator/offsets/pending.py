"""Offsets of open transactions: they count once their transaction commits, and never if it aborts (KIP-98).

Which offset is the newest is a matter of where it stands in the log, not of when its transaction ended, so that the
same records give the same offsets after compaction has dropped some. What can no longer become the newest is dropped at
once: by a commit outside of transactions, by a tombstone, by a transaction that commits what stands behind it.

Invariant: no producer and no group with nothing pending is kept.
"""

from __future__ import annotations

from typing import NamedTuple

from klamm.model import TopicPartition
from klamm_coordinator.records.schemas import OffsetCommitValue


class _Pending(NamedTuple):
    order: int
    """Where it stands in the log, relative to the others."""
    value: OffsetCommitValue


class PendingOffsets:
    """Changed by acknowledged records only."""

    def __init__(self) -> None:
        self._of_group: dict[str, dict[TopicPartition, dict[int, _Pending]]] = {}
        """The pending offsets by group, partition and producer id."""
        self._of_producer: dict[int, set[tuple[str, TopicPartition]]] = {}
        self._next_order = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PendingOffsets) and self._newest_first() == other._newest_first()

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        """Whether anything is pending."""
        return bool(self._of_group)

    def group_ids(self) -> set[str]:
        """Groups with pending offsets."""
        return set(self._of_group)

    def producer_ids(self) -> set[int]:
        """Whose transactions have offsets pending."""
        return set(self._of_producer)

    def groups_of(self, producer_id: int) -> set[str]:
        """Groups with offsets pending of this producer."""
        return {group_id for group_id, _ in self._of_producer.get(producer_id, ())}

    def partitions(self, group_id: str) -> set[TopicPartition]:
        """The group's partitions that have a pending offset."""
        return set(self._of_group.get(group_id, ()))

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether a transaction that is not decided may change the offset."""
        return partition in self._of_group.get(group_id, ())

    def add(self, producer_id: int, group_id: str, partition: TopicPartition, value: OffsetCommitValue) -> None:
        """An acknowledged offset of a transaction; it replaces an earlier one of the same transaction."""
        offsets = self._of_group.setdefault(group_id, {}).setdefault(partition, {})
        offsets[producer_id] = _Pending(self._next_order, value)
        self._next_order += 1
        self._of_producer.setdefault(producer_id, set()).add((group_id, partition))

    def drop(self, group_id: str, partition: TopicPartition) -> None:
        """Something newer than everything that is pending there counts now."""
        for producer_id in list(self._of_group.get(group_id, {}).get(partition, ())):
            self._remove(producer_id, group_id, partition)

    def end(self, producer_id: int, *, committed: bool) -> list[tuple[str, TopicPartition, OffsetCommitValue]]:
        """The producer's transaction is over; what it commits, in the order of the log."""
        ended = [
            (self._remove(producer_id, group_id, partition), group_id, partition)
            for group_id, partition in list(self._of_producer.get(producer_id, ()))
        ]
        if not committed:
            return []
        ended.sort()
        for pending, group_id, partition in ended:
            self._drop_older(pending.order, group_id, partition)
        return [(group_id, partition, pending.value) for pending, group_id, partition in ended]

    def _drop_older(self, order: int, group_id: str, partition: TopicPartition) -> None:
        there = self._of_group.get(group_id, {}).get(partition, {})
        for producer_id in [producer_id for producer_id, pending in there.items() if pending.order < order]:
            self._remove(producer_id, group_id, partition)

    def _remove(self, producer_id: int, group_id: str, partition: TopicPartition) -> _Pending:
        offsets = self._of_group[group_id]
        removed = offsets[partition].pop(producer_id)
        if not offsets[partition]:
            del offsets[partition]
        if not offsets:
            del self._of_group[group_id]
        keys = self._of_producer[producer_id]
        keys.discard((group_id, partition))
        if not keys:
            del self._of_producer[producer_id]
        return removed

    def _newest_first(self) -> dict[tuple[str, TopicPartition], list[tuple[int, OffsetCommitValue]]]:
        """The producers and values of each partition, newest first, without the numbers that order them."""
        return {
            (group_id, partition): [
                (producer_id, pending.value)
                for producer_id, pending in sorted(there.items(), key=lambda item: item[1].order, reverse=True)
            ]
            for group_id, offsets in self._of_group.items()
            for partition, there in offsets.items()
        }
