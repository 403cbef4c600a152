"""Records from record batches, however damaged the batch may be.

For any bytes, the result is records or a `CorruptBatchError`. The memory is bounded by the size of the batch and by
`max_decompressed_bytes`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import repeat
from typing import Final, NamedTuple

from klamm.records.compression import decompress
from klamm.records.contents import MAX_DECOMPRESSED_BYTES, slices
from klamm.records.errors import DecompressedTooLargeError, InvalidRecordError
from klamm.records.header import (
    COMPRESSION_MASK,
    HEADER_SIZE_BYTES,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    Buffer,
    read_whole,
    validate_batch,
    verify_crc,
)
from klamm.records.parser import parse_records
from klamm.records.record import RECORD_SIZE_BYTES_MIN, Columns, Headers, Record

_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1

_record_of = partial(tuple.__new__, Record)
_NO_HEADERS: Final[Headers] = ()


def decode_batch(
    buffer: Buffer,
    position: int = 0,
    *,
    check_crc: bool = True,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> list[Record]:
    """Returns the records of the batch at `position`, in order. This includes those of a control batch.

    Raises a CorruptBatchError."""
    return decode_section(
        read_section(buffer, position, check_crc=check_crc, max_decompressed_bytes=max_decompressed_bytes)
    )


def decode_section(section: RecordSection) -> list[Record]:
    """Returns the records of a section, in order. Raises InvalidRecordError."""
    header, data, columns = _parse(section)
    rows = zip(
        _offsets(header, columns),
        _timestamps_ms(header, columns),
        slices(data, columns.key_starts, columns.key_lengths),
        slices(data, columns.value_starts, columns.value_lengths),
        _headers(columns),
        strict=False,
    )
    return list(map(_record_of, rows))


class RecordSection(NamedTuple):
    """The decompressed records of a batch: `data[start:end]`."""

    header: BatchHeader
    data: Buffer
    """The bytes with the records: the batch's own buffer if it is not compressed."""
    start: int
    end: int


def read_section(
    buffer: Buffer,
    position: int = 0,
    *,
    check_crc: bool = True,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> RecordSection:
    """Returns the record section of the batch at `position`, for callers that read many batches at once. The record
    count is at most the number of records that fit into the bytes. Raises a CorruptBatchError."""
    assert max_decompressed_bytes <= _INT32_MAX, f"max_decompressed_bytes {max_decompressed_bytes} is not an int32"
    header = read_whole(buffer, position)
    if check_crc:
        verify_crc(buffer, position, header)
    data, start, end = buffer, position + HEADER_SIZE_BYTES, position + header.size_bytes
    if header.attributes & COMPRESSION_MASK and start < end:
        data = decompress(header.compression, memoryview(buffer)[start:end], max_bytes=max_decompressed_bytes)
        start, end = 0, len(data)
    elif end - start > max_decompressed_bytes:
        raise DecompressedTooLargeError(f"the batch at offset {header.base_offset} has {end - start} bytes of records")
    if not 0 <= header.record_count * RECORD_SIZE_BYTES_MIN <= end - start:
        raise InvalidRecordError(
            f"the batch at offset {header.base_offset} states {header.record_count} records in {end - start} bytes"
        )
    return RecordSection(header, data, start, end)


def validate_records(
    buffer: Buffer, position: int = 0, *, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> BatchHeader:
    """Checks a batch like `validate_batch`, and also every record: it must parse, and offsets must be 0, 1, 2 … without
    a gap.

    Raises a CorruptBatchError."""
    header = validate_batch(buffer, position)
    _, _, columns = _parse(
        read_section(buffer, position, check_crc=False, max_decompressed_bytes=max_decompressed_bytes)
    )
    if columns.offset_deltas != list(range(header.record_count)):
        raise InvalidRecordError(f"the offset deltas in the batch at offset {header.base_offset} are not 0, 1, 2 …")
    return header


def _parse(section: RecordSection) -> tuple[BatchHeader, bytes, Columns]:
    """Returns the header, the bytes of the records, and their columns."""
    data = section.data
    if not isinstance(data, bytes) or section.start or section.end != len(data):
        data = bytes(memoryview(data)[section.start : section.end])
    return section.header, data, parse_records(data, section.header.record_count)


def _offsets(header: BatchHeader, columns: Columns) -> list[int]:
    base_offset = header.base_offset
    if not 0 <= base_offset <= _INT64_MAX - _INT32_MAX:  # offset deltas have 32 bits
        raise InvalidRecordError(f"base offset {base_offset} is negative, or too large for the offsets after it")
    return [base_offset + delta for delta in columns.offset_deltas]


def _timestamps_ms(header: BatchHeader, columns: Columns) -> list[int]:
    if header.attributes & TIMESTAMP_TYPE_MASK:
        return [header.max_timestamp_ms] * header.record_count
    base_timestamp_ms, deltas = header.base_timestamp_ms, columns.timestamp_deltas
    if deltas and not -_INT64_MAX <= base_timestamp_ms + min(deltas) <= base_timestamp_ms + max(deltas) <= _INT64_MAX:
        raise InvalidRecordError(f"timestamps in the batch at offset {header.base_offset} do not all fit 64 bits")
    return [base_timestamp_ms + delta for delta in deltas]


def _headers(columns: Columns) -> Iterable[Headers]:
    if not columns.headers:
        return repeat(_NO_HEADERS)
    return [columns.headers.get(index, _NO_HEADERS) for index in range(len(columns.offset_deltas))]
