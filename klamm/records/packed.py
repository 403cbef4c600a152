"""Records that the caller has encoded before the producer gets them. A caller with columns can encode in bulk.

The bytes are those after the header of an uncompressed batch. Offset and timestamp deltas count from the first record.
The producer adds sequence numbers, transaction and compression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

from klamm.records.contents import slices
from klamm.records.parser import parse_records
from klamm.records.record import RawRecord


@dataclass(frozen=True, kw_only=True)
class PackedRecords(Sequence[RawRecord]):
    """A sequence of encoded records. They are decoded only if a batch has to be split."""

    data: bytes
    record_count: int
    """The number of records, at least one."""
    base_timestamp_ms: int
    """The timestamp of the first record."""
    max_timestamp_ms: int

    def __len__(self) -> int:
        return self.record_count

    @overload
    def __getitem__(self, index: int) -> RawRecord: ...

    @overload
    def __getitem__(self, index: slice) -> list[RawRecord]: ...

    def __getitem__(self, index: int | slice) -> RawRecord | list[RawRecord]:
        return self._records[index]

    @cached_property
    def _records(self) -> list[RawRecord]:
        columns = parse_records(self.data, self.record_count)
        return [
            (self.base_timestamp_ms + delta, key, value, columns.headers.get(index, ()))
            for index, (delta, key, value) in enumerate(
                zip(
                    columns.timestamp_deltas,
                    slices(self.data, columns.key_starts, columns.key_lengths),
                    slices(self.data, columns.value_starts, columns.value_lengths),
                    strict=True,
                )
            )
        ]
