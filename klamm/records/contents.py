"""Reads only the keys and values of a batch, which is all that the replay of a log needs.

Such logs have millions of batches with one or two records. Columns would cost more than their contents, so this module
reads these records one by one. It reads larger batches like any other batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from klamm.records.compression import decompress
from klamm.records.errors import InvalidRecordError
from klamm.records.header import COMPRESSION_MASK, HEADER_SIZE_BYTES, BatchHeader, Buffer, verify_crc
from klamm.records.parser import parse_headers, parse_records
from klamm.records.record import RECORD_SIZE_BYTES_MIN
from klamm.records.varint import LENGTH_1, VARLONG_BYTES_MAX, decode_length, decode_varint

Contents = tuple[bytes | None, bytes | None]
"""The key and the value of a record."""

MAX_DECOMPRESSED_BYTES: Final = 2_147_483_639
"""The default limit of a batch's decompressed size: the default of Kafka's `max.decompressed.message.bytes`, so that a
reader can read all batches that brokers accept."""
_FEW_RECORDS_MAX: Final = 8


def decode_contents(
    buffer: Buffer, position: int, header: BatchHeader, *, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterable[Contents]:
    """Returns key and value of each record of the batch at `position`. The whole batch with this header is in `buffer`.

    Raises a CorruptBatchError."""
    verify_crc(buffer, position, header)
    data = bytes(buffer[position + HEADER_SIZE_BYTES : position + header.size_bytes])
    if header.attributes & COMPRESSION_MASK and data:
        data = decompress(header.compression, data, max_bytes=max_decompressed_bytes)
    count = header.record_count
    if not 0 <= count * RECORD_SIZE_BYTES_MIN <= len(data):
        raise InvalidRecordError(
            f"the batch at offset {header.base_offset} states {count} records in {len(data)} bytes"
        )
    if count <= _FEW_RECORDS_MAX:
        return _decode_few(data, count)
    columns = parse_records(data, count)
    return zip(
        slices(data, columns.key_starts, columns.key_lengths),
        slices(data, columns.value_starts, columns.value_lengths),
        strict=True,
    )


def slices(data: bytes, starts: list[int], lengths: list[int]) -> list[bytes | None]:
    """Returns keys or values. A length of -1 stands for null."""
    if max(lengths, default=0) < 0:
        return [None] * len(lengths)
    return [
        data[start : start + length] if length >= 0 else None for start, length in zip(starts, lengths, strict=True)
    ]


def _decode_few(data: bytes, count: int) -> list[Contents]:
    contents: list[Contents] = []
    at = 0
    try:
        for _ in range(count):
            length, at = decode_length(data, at)
            end = at + length
            at += 1  # skip the unused attributes
            at = at + 1 if data[at] < 0x80 else decode_varint(data, at, VARLONG_BYTES_MAX)[1]
            at = at + 1 if data[at] < 0x80 else decode_varint(data, at)[1]
            key, at = _slice(data, at)
            value, at = _slice(data, at)
            at = parse_headers(data, at)[1] if data[at] else at + 1
            if at != end:
                raise InvalidRecordError(f"record {len(contents)} ends at byte {at}, by its length at {end}")
            contents.append((key, value))
    except IndexError:
        raise InvalidRecordError(f"{len(data)} bytes end before the last of {count} records does") from None
    if at != len(data):
        raise InvalidRecordError(f"{len(data) - at} bytes follow the last of {count} records")
    return contents


def _slice(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Returns the bytes after their length, and the position after them. The position may be beyond the end of the
    data."""
    if (low := data[at]) < 0x80:
        length = LENGTH_1[low]
        at += 1
    else:
        length, at = decode_length(data, at)
    return (None, at) if length < 0 else (data[at : at + length], at + length)
