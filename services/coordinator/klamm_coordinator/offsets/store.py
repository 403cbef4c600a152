"""The offsets of a shard: the durable offsets, and the offsets that are being written.

    committed   the offsets of acknowledged records; readers see only these
    pending     acknowledged too, but part of a transaction that is still open (`pending.py`)
    in flight   the number of undecided writes of each offset; a deletion must delete these offsets too

An offset is kept encoded as in its record, 24 bytes or more. It is decoded when it is read, because most are never
read. Invariant: no group with an empty dict of offsets is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from klamm.model import TopicPartition
from klamm_coordinator.groups.sizes import OFFSET_BYTES, offset_bytes, text_bytes
from klamm_coordinator.offsets.pending import PendingOffsets
from klamm_coordinator.records.schemas import (
    PLAIN_OFFSET_BYTES,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_offset_value,
    encode_offset_value,
    offset_timestamps,
)
from klamm_coordinator.runtime.accounts import Accounts


class GroupOffsets(Mapping[TopicPartition, OffsetCommitValue]):
    """A view of the durable offsets of one group. Read it at once, because later changes may or may not be visible in
    it."""

    __slots__ = ("_encoded",)

    def __init__(self, encoded: Mapping[TopicPartition, bytes]) -> None:
        self._encoded = encoded

    def __getitem__(self, partition: TopicPartition) -> OffsetCommitValue:
        return decode_offset_value(self._encoded[partition])

    def __contains__(self, partition: object) -> bool:
        return partition in self._encoded

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._encoded)

    def __len__(self) -> int:
        return len(self._encoded)


_NO_OFFSETS: Mapping[TopicPartition, bytes] = {}
_NONE = GroupOffsets(_NO_OFFSETS)


class ShardOffsets:
    """The offsets of one shard. Replayed records and markers change the durable offsets. `begin` and `end` of writes
    change the offsets in flight."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._committed: dict[str, dict[TopicPartition, bytes]] = {}
        self._in_flight: dict[str, dict[TopicPartition, int]] = {}
        self._in_flight_of_transactions: Counter[tuple[str, TopicPartition]] = Counter()
        self.pending = PendingOffsets(accounts)

    def __eq__(self, other: object) -> bool:
        """Returns True if both have the same durable offsets."""
        return isinstance(other, ShardOffsets) and self._decoded() == other._decoded() and self.pending == other.pending

    __hash__ = None  # type: ignore[assignment]

    def group_ids(self) -> Iterable[str]:
        """Returns the ids of groups with durable offsets, committed or pending."""
        return self._committed.keys() | self.pending.group_ids()

    def count(self) -> int:
        """Returns the number of committed offsets."""
        return sum(map(len, self._committed.values()))

    def committed(self) -> Iterator[tuple[str, TopicPartition, OffsetCommitValue]]:
        """Yields the group id, partition and value of every committed offset. Safe to call from another thread."""
        for group_id, encoded in list(self._committed.items()):
            for partition, value in list(encoded.items()):
                yield group_id, partition, decode_offset_value(value)

    def of_group(self, group_id: str) -> GroupOffsets:
        """Returns the committed offsets of a group."""
        encoded = self._committed.get(group_id)
        return _NONE if encoded is None else GroupOffsets(encoded)

    def timestamps(self, group_id: str) -> Iterator[tuple[TopicPartition, int, int]]:
        """Yields the partition, commit time and expiry time of each committed offset of a group. The times are in
        ms."""
        for partition, encoded in self._committed.get(group_id, {}).items():
            yield partition, *offset_timestamps(encoded)

    def is_in_flight(self, group_id: str, partition: TopicPartition) -> bool:
        """Returns True if an undecided write changes this offset."""
        return partition in self._in_flight.get(group_id, ())

    def has_any(self, group_id: str) -> bool:
        """Returns True if the group has offsets, whether committed, pending or in flight."""
        return group_id in self._committed or group_id in self._in_flight or bool(self.pending.partitions(group_id))

    def is_undecided(self, group_id: str, partition: TopicPartition) -> bool:
        """Returns True if an undecided write or an open transaction may change this offset."""
        return self.is_in_flight(group_id, partition) or self.pending.is_pending(group_id, partition)

    def is_unstable(self, group_id: str, partition: TopicPartition) -> bool:
        """Returns True if a transaction may change this offset (KIP-447)."""
        return self.pending.is_pending(group_id, partition) or (
            self._in_flight_of_transactions[group_id, partition] > 0
        )

    def unstable_partitions(self, group_id: str) -> set[TopicPartition]:
        """Returns the group's partitions whose offsets a transaction may change (KIP-447)."""
        in_flight = {partition for group, partition in self._in_flight_of_transactions if group == group_id}
        return self.pending.partitions(group_id) | in_flight

    def partitions_to_delete(self, group_id: str, topics: Collection[str] | None = None) -> list[TopicPartition]:
        """Returns the group's partitions that have a durable offset or may get one, sorted. With `topics`, returns only
        partitions of these topics."""
        found = {*self.of_group(group_id), *self._in_flight.get(group_id, ()), *self.pending.partitions(group_id)}
        return sorted(found if topics is None else (partition for partition in found if partition.topic in topics))

    def replay(self, group_id: str, partition: TopicPartition, value: OffsetCommitValue | None) -> None:
        """Replays an acknowledged record outside of transactions. None deletes the offset and its pending offsets."""
        self.replay_encoded(group_id, partition, None if value is None else encode_offset_value(value))

    def replay_encoded(self, group_id: str, partition: TopicPartition, value: bytes | None) -> None:
        """Replays an acknowledged record with an encoded value, which the caller has checked."""
        if self.pending:
            change = self.pending.remove if value is None else self.pending.outdate
            change(group_id, partition)
        self._set(group_id, partition, value)

    def end_transaction(self, producer_id: int, *, committed: bool) -> set[str]:
        """Replays an acknowledged marker. Returns the groups that had offsets pending."""
        group_ids = self.pending.groups_of(producer_id)
        for group_id, partition, value in self.pending.end(producer_id, committed=committed):
            self._set(group_id, partition, encode_offset_value(value))
        return group_ids

    def _decoded(self) -> dict[str, dict[TopicPartition, OffsetCommitValue]]:
        return {group_id: dict(self.of_group(group_id)) for group_id in self._committed}

    def _set(self, group_id: str, partition: TopicPartition, value: bytes | None) -> None:
        offsets = self._committed.get(group_id)
        if value is not None:
            if offsets is None:
                offsets = self._committed[group_id] = {}
            former = offsets.get(partition)
            offsets[partition] = value
            if former is None:
                self._accounts.add(group_id, _size_bytes(partition, value))
            elif len(former) != len(value):
                self._accounts.add(group_id, len(value) - len(former))
        elif offsets is not None and partition in offsets:
            self._accounts.add(group_id, -_size_bytes(partition, offsets.pop(partition)))
            if not offsets:
                del self._committed[group_id]

    def added_bytes(self, group_id: str, partition: TopicPartition, value: OffsetCommitValue) -> int:
        """Returns the bytes by which this offset would make the group larger, 0 if it would not."""
        former = self._committed.get(group_id, _NO_OFFSETS).get(partition)
        if former is None:
            return offset_bytes(partition.topic, value.metadata)
        return max(0, PLAIN_OFFSET_BYTES + text_bytes(value.metadata) - len(former)) if value.metadata else 0

    def sizes(self) -> dict[str, int]:
        """Returns the bytes of each group's offsets, counted one by one, for tests."""
        sizes = Counter(self.pending.sizes())
        for group_id, encoded in self._committed.items():
            sizes[group_id] += sum(_size_bytes(partition, value) for partition, value in encoded.items())
        return sizes

    def begin(self, records: Iterable[GroupRecord], *, transactional: bool = False) -> int:
        """Notes that these records are being written, so that their offsets are in flight. Returns the bytes by which
        their offsets will make the group larger."""
        added_bytes = 0
        for key, value in records:
            if isinstance(key, OffsetCommitKey):
                partition = TopicPartition(key.topic, key.partition)
                counts = self._in_flight.get(key.group_id)
                if counts is None:
                    counts = self._in_flight[key.group_id] = {}
                counts[partition] = counts.get(partition, 0) + 1
                if transactional:
                    self._in_flight_of_transactions[key.group_id, partition] += 1
                if isinstance(value, OffsetCommitValue):
                    added_bytes += self.added_bytes(key.group_id, partition, value)
        return added_bytes

    def end(self, records: Iterable[GroupRecord], *, transactional: bool = False) -> None:
        """Notes that the write of these records is decided, whether it was appended or not."""
        for key, _ in records:
            if isinstance(key, OffsetCommitKey):
                counts = self._in_flight[key.group_id]
                partition = TopicPartition(key.topic, key.partition)
                if transactional:
                    self._in_flight_of_transactions[key.group_id, partition] -= 1
                    if not self._in_flight_of_transactions[key.group_id, partition]:
                        del self._in_flight_of_transactions[key.group_id, partition]
                if counts[partition] > 1:
                    counts[partition] -= 1
                else:
                    del counts[partition]
                if not counts:
                    del self._in_flight[key.group_id]


def _size_bytes(partition: TopicPartition, encoded: bytes) -> int:
    """Returns the bytes of a committed offset. Names of topics are ASCII."""
    return OFFSET_BYTES + len(partition[0]) + len(encoded)
