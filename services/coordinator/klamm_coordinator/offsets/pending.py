"""Offsets of open transactions: they count once their transaction commits, and never if it aborts (KIP-98).

Kafka's `OffsetMetadataManager` has the same rules. The place in the log says which of two offsets is newer, and not
the time at which a transaction ended, so that the same records give the same offsets after compaction has dropped
some. An offset stays pending until the marker of its transaction, even if a newer one counts already; the marker then
leaves the newer one in place. Only a tombstone removes pending offsets before their marker.

Invariant: this state keeps no producer, partition or group with nothing pending.
"""

from __future__ import annotations

from typing import NamedTuple

from klamm.model import TopicPartition
from klamm_coordinator.groups.sizes import offset_bytes
from klamm_coordinator.records.schemas import OffsetCommitValue
from klamm_coordinator.runtime.accounts import Accounts


class _Pending(NamedTuple):
    order: int
    """The offset's place in the log, relative to the others."""
    value: OffsetCommitValue


class _PartitionPending:
    """The pending offsets of one group in one partition."""

    __slots__ = ("by_producer", "counting_order")

    def __init__(self) -> None:
        self.by_producer: dict[int, _Pending] = {}
        self.counting_order = -1
        """The place in the log of the offset that counts, if it came after the first pending one; or -1."""

    def newest_first(self) -> list[tuple[int, OffsetCommitValue, bool]]:
        """Returns each producer with its value, and whether that value will count if the transaction commits."""
        ordered = sorted(self.by_producer.items(), key=lambda item: item[1].order, reverse=True)
        return [(producer_id, pending.value, pending.order > self.counting_order) for producer_id, pending in ordered]


class PendingOffsets:
    """The pending offsets of one shard. Only acknowledged records change them."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._of_group: dict[str, dict[TopicPartition, _PartitionPending]] = {}
        self._of_producer: dict[int, set[tuple[str, TopicPartition]]] = {}
        self._next_order = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PendingOffsets) and self._newest_first() == other._newest_first()

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        """Returns True if any offset is pending."""
        return bool(self._of_group)

    def group_ids(self) -> set[str]:
        """Returns the ids of the groups that have pending offsets."""
        return set(self._of_group)

    def producer_ids(self) -> set[int]:
        """Returns the ids of the producers whose transactions have pending offsets."""
        return set(self._of_producer)

    def groups_of(self, producer_id: int) -> set[str]:
        """Returns the ids of the groups that have pending offsets of this producer."""
        return {group_id for group_id, _ in self._of_producer.get(producer_id, ())}

    def partitions(self, group_id: str) -> set[TopicPartition]:
        """Returns the group's partitions that have a pending offset."""
        return set(self._of_group.get(group_id, ()))

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """Returns True if an open transaction may change the offset."""
        return partition in self._of_group.get(group_id, ())

    def add(self, producer_id: int, group_id: str, partition: TopicPartition, value: OffsetCommitValue) -> None:
        """Adds an acknowledged offset of a transaction. It replaces an earlier offset of the same transaction."""
        there = self._of_group.setdefault(group_id, {}).setdefault(partition, _PartitionPending())
        former = there.by_producer.get(producer_id)
        there.by_producer[producer_id] = _Pending(self._take_order(), value)
        self._accounts.add(group_id, _size_bytes(partition, value) - _size_bytes(partition, former and former.value))
        self._of_producer.setdefault(producer_id, set()).add((group_id, partition))

    def outdate(self, group_id: str, partition: TopicPartition) -> None:
        """Notes that an offset outside of transactions is newer than all that are pending in the partition."""
        there = self._of_group.get(group_id, {}).get(partition)
        if there is not None:
            there.counting_order = self._take_order()

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        """Removes the pending offsets of the partition, because its offset was deleted."""
        there = self._of_group.get(group_id, {}).get(partition)
        for producer_id in list(there.by_producer) if there is not None else ():
            self._take(producer_id, group_id, partition)

    def end(self, producer_id: int, *, committed: bool) -> list[tuple[str, TopicPartition, OffsetCommitValue]]:
        """Ends the producer's transaction. Returns the offsets that count from now on, in the order of the log."""
        counting = []
        for group_id, partition in list(self._of_producer.get(producer_id, ())):
            there = self._of_group[group_id][partition]
            pending = self._take(producer_id, group_id, partition)
            if committed and pending.order > there.counting_order:
                there.counting_order = pending.order
                counting.append((pending.order, group_id, partition, pending.value))
        return [(group_id, partition, value) for _, group_id, partition, value in sorted(counting)]

    def _take(self, producer_id: int, group_id: str, partition: TopicPartition) -> _Pending:
        partitions = self._of_group[group_id]
        taken = partitions[partition].by_producer.pop(producer_id)
        self._accounts.add(group_id, -_size_bytes(partition, taken.value))
        if not partitions[partition].by_producer:
            del partitions[partition]
        if not partitions:
            del self._of_group[group_id]
        keys = self._of_producer[producer_id]
        keys.discard((group_id, partition))
        if not keys:
            del self._of_producer[producer_id]
        return taken

    def sizes(self) -> dict[str, int]:
        """Returns the bytes of each group's pending offsets, counted one by one, for tests."""
        return {
            group_id: sum(
                _size_bytes(partition, pending.value)
                for partition, there in partitions.items()
                for pending in there.by_producer.values()
            )
            for group_id, partitions in self._of_group.items()
        }

    def _take_order(self) -> int:
        order = self._next_order
        self._next_order += 1
        return order

    def _newest_first(self) -> dict[tuple[str, TopicPartition], list[tuple[int, OffsetCommitValue, bool]]]:
        """Returns the pending offsets of each partition, newest first, without the numbers that order them."""
        return {
            (group_id, partition): there.newest_first()
            for group_id, partitions in self._of_group.items()
            for partition, there in partitions.items()
        }


def _size_bytes(partition: TopicPartition, value: OffsetCommitValue | None) -> int:
    """Returns the bytes of a pending offset, 0 for none."""
    return 0 if value is None else 2 * offset_bytes(partition.topic, value.metadata)
