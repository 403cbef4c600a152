"""What a batch holds: one record as read, one as given to be written, many as columns.

    Record => length varint | attributes int8 | timestamp_delta varlong | offset_delta varint
              key_length varint | key | value_length varint | value | header_count varint | headers
    Header => key_length varint | key (UTF-8) | value_length varint | value

A length of -1 stands for null (a header's key cannot be null). `length` counts what follows it. Deltas are
against base_offset and base_timestamp_ms of the batch header. The attributes of a record are unused.
Follows `org.apache.kafka.common.record.DefaultRecord`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]

RawRecord = tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
"""`(timestamp_ms, key, value, headers)`: what is known of a record before it has an offset."""

RECORD_SIZE_BYTES_MIN: Final = 7
"""Six numbers of one byte each and the attributes."""


class Record(NamedTuple):
    """One record as a consumer sees it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSpans:
    """Where the keys and values of one batch lie in `data`: columns, without a Python object per value.

    All arrays have one element per record. A length of -1 stands for null; the start then is where the
    content would be. Starts never decrease, so that start and end interleaved are the offsets of an Arrow
    binary array over `data`, of which every second element is a value.
    """

    data: bytes
    """The records of the batch, decompressed."""
    offsets: array[int]
    """int64."""
    timestamps_ms: array[int]
    """int64."""
    key_starts: array[int]
    """int32, into `data`."""
    key_lengths: array[int]
    """int32."""
    value_starts: array[int]
    """int32, into `data`."""
    value_lengths: array[int]
    """int32."""
    headers: dict[int, Headers]
    """By position of the record in the batch; records without headers are left out."""


@dataclass(slots=True)
class Columns:
    """A batch being parsed: as `RecordSpans`, but lists to append to, and deltas instead of offsets and times."""

    offset_deltas: list[int] = field(default_factory=list)
    timestamp_deltas: list[int] = field(default_factory=list)
    key_starts: list[int] = field(default_factory=list)
    key_lengths: list[int] = field(default_factory=list)
    value_starts: list[int] = field(default_factory=list)
    value_lengths: list[int] = field(default_factory=list)
    headers: dict[int, Headers] = field(default_factory=dict)
