"""The forms of records: a decoded record, a record to be written, and many records as columns.

    Record => length varint | attributes int8 | timestamp_delta varlong | offset_delta varint
              key_length varint | key | value_length varint | value | header_count varint | headers
    Header => key_length varint | key (UTF-8) | value_length varint | value

A length of -1 stands for null (a header's key cannot be null). `length` counts what follows it. Deltas are
against base_offset and base_timestamp_ms of the batch header. The attributes of a record are unused.
Follows `org.apache.kafka.common.record.DefaultRecord`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]

RawRecord = tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
"""A record without an offset, to be written: `(timestamp_ms, key, value, headers)`."""

RECORD_SIZE_BYTES_MIN: Final = 7
"""The minimum size of a record: the attributes and six numbers of one byte each."""


class Record(NamedTuple):
    """One record as a consumer sees it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(slots=True)
class Columns:
    """The parsed columns of a batch. Each list has one element per record. The lists say where keys and values are.

    A length of -1 stands for null."""

    offset_deltas: list[int] = field(default_factory=list)
    timestamp_deltas: list[int] = field(default_factory=list)
    key_starts: list[int] = field(default_factory=list)
    key_lengths: list[int] = field(default_factory=list)
    value_starts: list[int] = field(default_factory=list)
    value_lengths: list[int] = field(default_factory=list)
    headers: dict[int, Headers] = field(default_factory=dict)
