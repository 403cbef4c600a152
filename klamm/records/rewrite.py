"""Writes a batch again: with some of its records, for log compaction, or with another compression.

The offsets of records stay the same, and so do base offset, last offset, sequence and producer of the batch. So encoded
records are copied, and only the header is new. With a delete horizon (KIP-534) the base timestamp is the horizon, and
the timestamps of the records are encoded again, relative to it. Follows `MemoryRecords.filterTo`."""

from __future__ import annotations

from collections.abc import Sequence

from klamm.checksum import crc32c
from klamm.records.compression import CompressionType, compress
from klamm.records.header import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CRC,
    CRC_POSITION,
    DELETE_HORIZON_MASK,
    HEADER,
    HEADER_SIZE_BYTES,
    LENGTH_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
)
from klamm.records.keys import RecordKeys
from klamm.records.varint import VARLONG_BYTES_MAX, decode_length, decode_varint, varint_of


def retain_records(
    header: BatchHeader, records: RecordKeys, indexes: Sequence[int], *, delete_horizon_ms: int | None = None
) -> bytes:
    """Returns the batch with the records at `indexes` (ascending, at least one), compressed as before.

    `delete_horizon_ms` sets the delete horizon if the batch has none. An existing horizon stays."""
    assert indexes, f"no record is left of the batch at offset {header.base_offset}"
    deltas = records.timestamp_deltas
    max_timestamp_ms = header.max_timestamp_ms
    if header.timestamp_type is TimestampType.CREATE_TIME:
        max_timestamp_ms = header.base_timestamp_ms + max([deltas[index] for index in indexes])
    base_timestamp_ms, attributes = header.base_timestamp_ms, header.attributes
    if delete_horizon_ms is None:
        data, starts = records.data, records.starts
        section = b"".join([data[starts[index] : starts[index + 1]] for index in indexes])
    else:
        assert header.delete_horizon_ms is None, header
        section = _rebased(records, indexes, header.base_timestamp_ms - delete_horizon_ms)
        base_timestamp_ms, attributes = delete_horizon_ms, attributes | DELETE_HORIZON_MASK
    return _encode(
        header._replace(
            attributes=attributes,
            base_timestamp_ms=base_timestamp_ms,
            max_timestamp_ms=max_timestamp_ms,
            record_count=len(indexes),
        ),
        compress(header.compression, section),
    )


def recompress(header: BatchHeader, records: bytes, compression: CompressionType) -> bytes:
    """Returns the batch with the decompressed `records` in another compression. All other fields stay the same."""
    attributes = header.attributes & ~COMPRESSION_MASK | compression
    return _encode(header._replace(attributes=attributes), compress(compression, records))


def retain_header(header: BatchHeader) -> bytes:
    """Returns the batch without records. Its offsets and its producer's sequence numbers are kept."""
    return _encode(
        header._replace(
            attributes=header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_MASK) | CompressionType.NONE,
            base_timestamp_ms=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


def _rebased(records: RecordKeys, indexes: Sequence[int], shift_ms: int) -> bytes:
    """Returns the records with `shift_ms` added to their timestamp deltas."""
    data, starts = records.data, records.starts
    pieces: list[bytes] = []
    for index in indexes:
        _, at = decode_length(data, starts[index])
        _, offset_at = decode_varint(data, at + 1, VARLONG_BYTES_MAX)
        delta = varint_of(records.timestamp_deltas[index] + shift_ms)
        rest = data[offset_at : starts[index + 1]]
        pieces += varint_of(1 + len(delta) + len(rest)), data[at : at + 1], delta, rest
    return b"".join(pieces)


def _encode(header: BatchHeader, section: bytes) -> bytes:
    """Returns the batch with these fields and records. Computes length and checksum."""
    length = HEADER_SIZE_BYTES - LENGTH_OVERHEAD_BYTES + len(section)
    head = bytearray(HEADER.pack(*header._replace(batch_length=length, crc=0)))
    CRC.pack_into(head, CRC_POSITION, crc32c(section, crc32c(head[ATTRIBUTES_POSITION:])))
    return b"".join((head, section))
