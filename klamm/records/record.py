"""What a batch holds: one record as read, one as given to be written, many as columns.

    Record => length varint | attributes int8 | timestamp_delta varlong | offset_delta varint
              key_length varint | key | value_length varint | value | header_count varint | headers
    Header => key_length varint | key (UTF-8) | value_length varint | value

A length of -1 stands for null (a header's key cannot be null). `length` counts what follows it. Deltas are
against base_offset and base_timestamp_ms of the batch header. The attributes of a record are unused.
Follows `org.apache.kafka.common.record.DefaultRecord`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]

RawRecord = tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
"""`(timestamp_ms, key, value, headers)` of a record that has no offset yet."""

RECORD_SIZE_BYTES_MIN: Final = 7
"""Six numbers of one byte each and the attributes."""


class Record(NamedTuple):
    """One record as a consumer sees it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(slots=True)
class Columns:
    """A batch being parsed: where its keys and values lie, each list with one element per record.

    A length of -1 stands for null."""

    offset_deltas: list[int] = field(default_factory=list)
    timestamp_deltas: list[int] = field(default_factory=list)
    key_starts: list[int] = field(default_factory=list)
    key_lengths: list[int] = field(default_factory=list)
    value_starts: list[int] = field(default_factory=list)
    value_lengths: list[int] = field(default_factory=list)
    headers: dict[int, Headers] = field(default_factory=dict)
