"""What a group must have read from a topic whose retention waits for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.support.violation import require


class ReadRecords:
    """The records that one group has read, by partition and offset. Raises `Violation` at the first record that is
    missing."""

    def __init__(self, group_id: str) -> None:
        self.numbers: dict[tuple[int, int], int] = {}
        self._group_id = group_id
        self._next: dict[int, int] = {}
        self._committed: dict[int, int] = {}

    def begin(self, partition: int, committed: int) -> None:
        """Begins to read a partition at the committed offset."""
        known = self._committed.get(partition, 0)
        require(
            committed >= known,
            f"{self._group_id} had committed {known} in partition {partition}, and is at {committed} now",
        )
        self._next[partition] = committed

    def add(self, partition: int, records: Iterable[tuple[int, int]]) -> None:
        """Adds records that were read, as offset and number."""
        for offset, number in records:
            expected = self._next[partition]
            require(
                offset == expected,
                f"{self._group_id} read offset {offset} of partition {partition} instead of {expected}",
            )
            self._next[partition] = offset + 1
            before = self.numbers.setdefault((partition, offset), number)
            require(before == number, f"offset {offset} of partition {partition} was {before}, and is {number} now")

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Notes offsets whose commit was acknowledged."""
        self._committed |= offsets

    def check_start(self, partition: int, log_start_offset: int) -> None:
        """Checks that the group's next record was not deleted."""
        expected = self._next[partition]
        require(
            log_start_offset <= expected,
            f"{self._group_id} has not read partition {partition} from {expected} on, it starts at {log_start_offset}",
        )

    def check_complete(self, acknowledged: Mapping[tuple[int, int], int]) -> None:
        """Checks that the group has read every acknowledged record."""
        missing = sorted(where for where, number in acknowledged.items() if self.numbers.get(where) != number)
        require(not missing, f"{self._group_id} has not read {len(missing)} acknowledged records: {missing[:20]}")
