"""What each group of a shard lost in each partition: records that were deleted before the group read them.

    stored      as in the acknowledged records
    in flight   in records that are being written, so that nothing is counted twice

Invariant: no group with an empty dict of partitions is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from klamm.model import TopicPartition
from klamm_coordinator.groups.sizes import lost_records_bytes
from klamm_coordinator.records.lost_records_schema import LostRecordsKey, LostRecordsValue
from klamm_coordinator.records.schemas import GroupRecord
from klamm_coordinator.runtime.accounts import Accounts

_NONE: Final[Mapping[TopicPartition, LostRecordsValue]] = {}


class LostRecords:
    """The losses of one shard's groups. Replayed records change the stored losses. `begin` and `end` of writes change
    those in flight."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._stored: dict[str, dict[TopicPartition, LostRecordsValue]] = {}
        self._in_flight: Counter[LostRecordsKey] = Counter()

    def __eq__(self, other: object) -> bool:
        """Returns True if both have the same stored losses."""
        return isinstance(other, LostRecords) and self._stored == other._stored

    __hash__ = None  # type: ignore[assignment]

    def of_group(self, group_id: str) -> Mapping[TopicPartition, LostRecordsValue]:
        """Returns the stored losses of a group."""
        return self._stored.get(group_id, _NONE)

    def all_keys(self) -> Iterator[LostRecordsKey]:
        """Yields the keys of all stored losses. Safe to call from another thread."""
        for group_id, losses in list(self._stored.items()):
            for partition in list(losses):
                yield LostRecordsKey(group_id, *partition)

    def is_in_flight(self, key: LostRecordsKey) -> bool:
        """Returns True if an undecided write changes this loss."""
        return self._in_flight[key] > 0

    def replay(self, key: LostRecordsKey, value: LostRecordsValue | None) -> None:
        """Replays an acknowledged record. None deletes the loss."""
        partition = TopicPartition(key.topic, key.partition)
        losses = self._stored.get(key.group_id)
        if value is not None:
            if losses is None:
                losses = self._stored[key.group_id] = {}
            if partition not in losses:
                self._accounts.add(key.group_id, lost_records_bytes(key.topic))
            losses[partition] = value
        elif losses is not None and partition in losses:
            del losses[partition]
            self._accounts.add(key.group_id, -lost_records_bytes(key.topic))
            if not losses:
                del self._stored[key.group_id]

    def sizes(self) -> dict[str, int]:
        """Returns the bytes of each group's losses, counted one by one, for tests."""
        return {
            group_id: sum(lost_records_bytes(partition.topic) for partition in losses)
            for group_id, losses in self._stored.items()
        }

    def begin(self, records: Iterable[GroupRecord]) -> None:
        """Notes that these records are being written."""
        self._in_flight.update(key for key, _ in records if isinstance(key, LostRecordsKey))

    def end(self, records: Iterable[GroupRecord]) -> None:
        """Notes that the write of these records is decided, whether it was appended or not."""
        for key, _ in records:
            if isinstance(key, LostRecordsKey):
                self._in_flight[key] -= 1
                if not self._in_flight[key]:
                    del self._in_flight[key]
