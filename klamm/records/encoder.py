"""Record batches from records: byte for byte what Kafka's `MemoryRecordsBuilder` writes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

from klamm.model import NO_LEADER_EPOCH, NO_PRODUCER_ID
from klamm.records.compression import CompressionType, compress
from klamm.records.header import (
    CONTROL_MASK,
    HEADER,
    HEADER_SIZE_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    TimestampType,
    seal,
)
from klamm.records.record import RawRecord
from klamm.records.varint import encode_all, encode_varint

NO_PRODUCER_EPOCH: Final = -1
_NULL: Final = encode_varint(-1)


def encode_batch(
    records: Sequence[RawRecord],
    *,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
    compression: CompressionType = CompressionType.NONE,
    compression_level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    offset_deltas: Sequence[int] | None = None,
    last_offset_delta: int | None = None,
) -> bytes:
    """One batch of `records`, offsets `base_offset` onwards without gaps.

    Compaction rewrites batches with gaps: it gives each record's `offset_deltas` (ascending) and the
    `last_offset_delta` the batch had, and may then give no records at all.
    """
    if offset_deltas is None:
        offset_deltas = range(len(records))
    if last_offset_delta is None:
        if not records:
            raise ValueError("a batch without records needs a last_offset_delta")
        last_offset_delta = offset_deltas[-1]
    timestamps_ms = [record[0] for record in records] or [NO_TIMESTAMP]
    section = (
        compress(compression, _encode_records(records, offset_deltas), compression_level) if records else b""
    )
    attributes = (
        compression
        | (TIMESTAMP_TYPE_MASK if timestamp_type else 0)
        | (TRANSACTIONAL_MASK if is_transactional else 0)
        | (CONTROL_MASK if is_control else 0)
    )
    batch = bytearray(
        HEADER.pack(
            base_offset,
            HEADER_SIZE_BYTES - LENGTH_OVERHEAD_BYTES + len(section),
            partition_leader_epoch,
            MAGIC,
            0,
            attributes,
            last_offset_delta,
            timestamps_ms[0],
            max(timestamps_ms),
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )
    )
    batch += section
    seal(batch)
    return bytes(batch)


def estimate_size_bytes(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] = ()
) -> int:
    """At most this much does the record add to an uncompressed batch (its deltas are not known yet)."""
    size = _RECORD_OVERHEAD_BYTES_MAX + (len(key) if key else 0) + (len(value) if value else 0)
    for name, content in headers:
        size += _HEADER_OVERHEAD_BYTES_MAX + 4 * len(name) + (len(content) if content else 0)
    return size


_RECORD_OVERHEAD_BYTES_MAX: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5
_HEADER_OVERHEAD_BYTES_MAX: Final = 5 + 5


def _encode_records(records: Sequence[RawRecord], offset_deltas: Sequence[int]) -> bytes:
    """Column by column: each step is one pass in C over all records."""
    timestamps_ms, keys, values, headers = zip(*records, strict=True)
    base_timestamp_ms = timestamps_ms[0]
    columns = [
        encode_all([timestamp_ms - base_timestamp_ms for timestamp_ms in timestamps_ms]),
        encode_all(list(offset_deltas)),
        *_encode_nullable(keys),
        *_encode_nullable(values),
        [_encode_headers(each) if each else b"\0" for each in headers],
    ]
    bodies = list(map(b"".join, zip(*columns, strict=True)))
    lengths = encode_all([len(body) + 1 for body in bodies])
    return b"".join(
        chain.from_iterable((length, b"\0", body) for length, body in zip(lengths, bodies, strict=True))
    )


def _encode_nullable(contents: Sequence[bytes | None]) -> tuple[list[bytes], list[bytes]]:
    """Length prefixes and contents."""
    lengths = encode_all([-1 if content is None else len(content) for content in contents])
    return lengths, [content or b"" for content in contents]


def _encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    pieces = [encode_varint(len(headers))]
    for name, content in headers:
        encoded_name = name.encode()
        pieces += encode_varint(len(encoded_name)), encoded_name
        pieces += (_NULL,) if content is None else (encode_varint(len(content)), content)
    return b"".join(pieces)
