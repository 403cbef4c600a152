"""Records from record batches, however damaged the batch may be.

Whatever the bytes are, the outcome is records or a `CorruptBatchError`; memory is bounded by the batch and
`max_decompressed_bytes`. Lengths are not checked one by one: positions only ever grow, so a record whose
parts do not end where its length says is found out at its end, and one that reaches past the data by an
IndexError.
"""

from __future__ import annotations

from array import array
from functools import partial
from typing import Final

from klamm.records.compression import decompress
from klamm.records.errors import InvalidRecordError
from klamm.records.header import (
    HEADER_SIZE_BYTES,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    Buffer,
    check_crc,
    read_whole,
    validate_batch,
)
from klamm.records.record import RECORD_SIZE_BYTES_MIN, Headers, Record, RecordSpans
from klamm.records.varint import VARLONG_BYTES_MAX, decode_varint

MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024
"""What a batch may become unless the caller says otherwise; `max.message.bytes` is 1 MiB by default."""

_record_of = partial(tuple.__new__, Record)


def decode_batch(
    buffer: Buffer,
    position: int = 0,
    *,
    check_crc: bool = True,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> list[Record]:
    """The records of the batch at `position`, in order; also those of a control batch.

    Raises a CorruptBatchError.
    """
    header, data = _open(buffer, position, check_crc, max_decompressed_bytes)
    try:
        rows = _decode_rows(data, header)
    except IndexError:
        raise _cut_off(header) from None
    return list(map(_record_of, rows))


def record_spans(
    buffer: Buffer,
    position: int = 0,
    *,
    check_crc: bool = True,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> RecordSpans:
    """The records of the batch at `position` as columns. Raises a CorruptBatchError."""
    header, data = _open(buffer, position, check_crc, max_decompressed_bytes)
    try:
        return _decode_spans(data, header)
    except IndexError:
        raise _cut_off(header) from None
    except OverflowError:
        raise InvalidRecordError(
            f"a record of the batch at offset {header.base_offset} is out of int64"
        ) from None


def validate_records(
    buffer: Buffer, position: int = 0, *, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> BatchHeader:
    """`validate_batch`, and every record: it parses, and offsets run 0, 1, 2 … without a gap.

    Raises a CorruptBatchError.
    """
    header = validate_batch(buffer, position)
    spans = record_spans(buffer, position, check_crc=False, max_decompressed_bytes=max_decompressed_bytes)
    expected = range(header.base_offset, header.base_offset + header.record_count)
    if list(spans.offsets) != list(expected):
        raise InvalidRecordError(
            f"offset deltas of the batch at offset {header.base_offset} are not 0, 1, 2 …"
        )
    return header


def _open(
    buffer: Buffer, position: int, with_crc: bool, max_decompressed_bytes: int
) -> tuple[BatchHeader, bytes]:
    """The header, and the records decompressed."""
    header = read_whole(buffer, position)
    if with_crc:
        check_crc(buffer, position, header)
    section = memoryview(buffer)[position + HEADER_SIZE_BYTES : position + header.size_bytes]
    if not section:
        data = b""
    else:
        data = decompress(header.compression, section, max_bytes=max_decompressed_bytes)
    if not 0 <= header.record_count * RECORD_SIZE_BYTES_MIN <= len(data):
        raise InvalidRecordError(
            f"batch at offset {header.base_offset} states {header.record_count} records in {len(data)} bytes"
        )
    return header, data


def _cut_off(header: BatchHeader) -> InvalidRecordError:
    return InvalidRecordError(f"the last records of the batch at offset {header.base_offset} are cut off")


def _decode_rows(
    data: bytes, header: BatchHeader
) -> list[tuple[int, int, bytes | None, bytes | None, Headers]]:
    """The plain form of each record."""
    base_offset, base_timestamp_ms = header.base_offset, header.base_timestamp_ms
    append_time_ms = header.max_timestamp_ms if header.attributes & TIMESTAMP_TYPE_MASK else None
    rows: list[tuple[int, int, bytes | None, bytes | None, Headers]] = []
    append = rows.append
    at = 0
    for _ in range(header.record_count):
        length, at = decode_varint(data, at)
        end = at + length
        timestamp_delta, at = decode_varint(data, at + 1, VARLONG_BYTES_MAX)
        offset_delta, at = decode_varint(data, at)
        key_length, at = decode_varint(data, at)
        key = value = None
        if key_length >= 0:
            key = data[at : at + key_length]
            at += key_length
        elif key_length != -1:
            raise InvalidRecordError("key length")
        value_length, at = decode_varint(data, at)
        if value_length >= 0:
            value = data[at : at + value_length]
            at += value_length
        elif value_length != -1:
            raise InvalidRecordError("value length")
        headers, at = _decode_headers(data, at)
        if at != end:
            raise InvalidRecordError(f"length {length}")
        append(
            (
                base_offset + offset_delta,
                base_timestamp_ms + timestamp_delta if append_time_ms is None else append_time_ms,
                key,
                value,
                headers,
            )
        )
    if at != len(data):
        raise InvalidRecordError(f"{len(data) - at} bytes after the last record")
    return rows


def _decode_headers(data: bytes, at: int) -> tuple[Headers, int]:
    count, at = decode_varint(data, at)
    if count == 0:
        return (), at
    if not 0 <= count <= len(data) - at:
        raise InvalidRecordError(f"{count} headers")
    headers = []
    for _ in range(count):
        size, at = decode_varint(data, at)
        if size < 0:
            raise InvalidRecordError("header key")
        name = data[at : at + size].decode("utf-8", "replace")
        at += size
        size, at = decode_varint(data, at)
        if size < -1:
            raise InvalidRecordError("header value")
        content = None if size < 0 else data[at : at + size]
        at += max(0, size)
        headers.append((name, content))
    return tuple(headers), at


def _decode_spans(data: bytes, header: BatchHeader) -> RecordSpans:
    rows: list[tuple[int, int, int, int, int, int]] = []
    headers: dict[int, Headers] = {}
    at = 0
    for index in range(header.record_count):
        length, at = decode_varint(data, at)
        end = at + length
        timestamp_delta, at = decode_varint(data, at + 1, VARLONG_BYTES_MAX)
        offset_delta, at = decode_varint(data, at)
        key_length, key_start = decode_varint(data, at)
        value_length, value_start = decode_varint(data, key_start + max(0, key_length))
        if key_length < -1 or value_length < -1:
            raise InvalidRecordError("length")
        record_headers, at = _decode_headers(data, value_start + max(0, value_length))
        if at != end:
            raise InvalidRecordError(f"length {length}")
        if record_headers:
            headers[index] = record_headers
        rows.append((offset_delta, timestamp_delta, key_start, key_length, value_start, value_length))
    if at != len(data):
        raise InvalidRecordError(f"{len(data) - at} bytes after the last record")
    append_time = header.attributes & TIMESTAMP_TYPE_MASK
    return RecordSpans(
        data=data,
        offsets=array("q", [header.base_offset + row[0] for row in rows]),
        timestamps_ms=array(
            "q",
            [header.max_timestamp_ms if append_time else header.base_timestamp_ms + row[1] for row in rows],
        ),
        key_starts=array("i", [row[2] for row in rows]),
        key_lengths=array("i", [row[3] for row in rows]),
        value_starts=array("i", [row[4] for row in rows]),
        value_lengths=array("i", [row[5] for row in rows]),
        headers=headers,
    )
