"""The records that a producer sends, and their metadata after the acknowledgement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class ProducerRecord(NamedTuple):
    """The arguments of one `send`, before serialization. Interceptors get this record and may return another."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str, bytes | None]] | None = None


class RecordMetadata(NamedTuple):
    """The place where a record was written."""

    topic: str
    partition: int
    offset: int
    """The record's offset; -1 with acks=0, because the broker answers only errors then."""
    timestamp_ms: int
    """The record's own timestamp, or the broker's with message.timestamp.type=LogAppendTime."""
    serialized_key_size: int
    """The size in bytes, or -1 if the key is null."""
    serialized_value_size: int
    """The size in bytes, or -1 if the value is null."""
