"""Record batches from records: byte for byte what Kafka's `MemoryRecordsBuilder` writes.

The base timestamp is that of the first record, and the maximum timestamp is the largest of all records. Records are
encoded as columns (all timestamps, all offsets, all keys …), which are then joined row by row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, repeat
from typing import Any, Final, TypedDict, Unpack, cast

from klamm.checksum import crc32c
from klamm.core import COMPILED_BATCHES
from klamm.model import NO_LEADER_EPOCH, NO_PRODUCER_ID
from klamm.records.compression import CompressionType, compress
from klamm.records.header import (
    ATTRIBUTES_POSITION,
    CONTROL_MASK,
    CRC,
    CRC_POSITION,
    HEADER,
    HEADER_SIZE_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    Buffer,
    TimestampType,
)
from klamm.records.packed import PackedRecords
from klamm.records.record import RawRecord
from klamm.records.varint import varint_of

NO_PRODUCER_EPOCH: Final = -1

_RECORD_OVERHEAD_BYTES_MAX: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5
"""The maximum size of length, attributes, timestamp delta, offset delta, key length, value length and header count."""
_HEADER_OVERHEAD_BYTES_MAX: Final = 5 + 5
_UTF8_BYTES_MAX: Final = 4

_NULL: Final = varint_of(-1)
_ATTRIBUTES: Final = b"\0"
_NO_HEADERS: Final = varint_of(0)


class BatchNumbers(TypedDict, total=False):
    """What a batch has beside its records. Compaction rewrites batches with gaps. It passes the `offset_deltas` of the
    records (ascending) and the `last_offset_delta` of the original batch, and may then pass no records at all."""

    base_offset: int
    partition_leader_epoch: int
    compression: CompressionType
    compression_level: int | None
    timestamp_type: TimestampType
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool
    offset_deltas: Sequence[int] | None
    last_offset_delta: int | None


def encode_batch(records: Sequence[RawRecord], **numbers: Unpack[BatchNumbers]) -> bytes:
    """Returns one batch with `records`. Without `offset_deltas`, their offsets begin at `base_offset` (0) and have no
    gaps. Without other numbers, the batch is not compressed and has no producer and no leader epoch."""
    return b"".join(_encode(records, **numbers))


def seal_batch(batch: Any, **numbers: Unpack[BatchNumbers]) -> Buffer:
    """Returns the bytes of an OpenBatch of the compiled core, as `encode_batch` would. Without compression, they are
    the batch's own memory."""
    header, section = _encode(batch, **numbers)
    if numbers.get("compression", CompressionType.NONE) is CompressionType.NONE:
        return batch.seal(header)  # type: ignore[no-any-return]
    return b"".join((header, section))


def _encode(
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
) -> tuple[bytearray, Buffer]:
    """Returns the header and the records of a batch, with their default values."""
    if offset_deltas is None:
        offset_deltas = range(len(records))
    assert len(offset_deltas) == len(records), f"{len(offset_deltas)} offsets for {len(records)} records"
    if last_offset_delta is None:
        if not records:
            raise ValueError("a batch without records needs a last_offset_delta")
        last_offset_delta = offset_deltas[-1]
    base_timestamp_ms, max_timestamp_ms, section = _section(records, offset_deltas)
    if compression is not CompressionType.NONE and section:
        section = compress(compression, bytes(section), compression_level)
    attributes = (
        (compression if section else CompressionType.NONE)
        | TIMESTAMP_TYPE_MASK * timestamp_type
        | TRANSACTIONAL_MASK * is_transactional
        | CONTROL_MASK * is_control
    )
    header = bytearray(
        HEADER.pack(
            base_offset,
            HEADER_SIZE_BYTES - LENGTH_OVERHEAD_BYTES + len(section),
            partition_leader_epoch,
            MAGIC,
            0,
            attributes,
            last_offset_delta,
            base_timestamp_ms,
            max_timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )
    )
    CRC.pack_into(header, CRC_POSITION, crc32c(section, crc32c(header[ATTRIBUTES_POSITION:])))
    return header, section


def _section(records: Sequence[RawRecord], offset_deltas: Sequence[int]) -> tuple[int, int, Buffer]:
    """Returns the base timestamp, the largest timestamp, and all records encoded."""
    if isinstance(records, PackedRecords) or isinstance(records, COMPILED_BATCHES):  # noqa: SIM101 - mypy
        return records.base_timestamp_ms, records.max_timestamp_ms, records.data
    if not records:
        return NO_TIMESTAMP, NO_TIMESTAMP, b""
    timestamps_ms, section = _encode_records(records, offset_deltas)
    return timestamps_ms[0], max(timestamps_ms), section


def estimate_size_bytes(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] = ()
) -> int:
    """Returns an upper bound of the bytes that the record adds to an uncompressed batch. Its deltas are not known
    yet.
    """
    size = _RECORD_OVERHEAD_BYTES_MAX + (len(key) if key else 0) + (len(value) if value else 0)
    for name, content in headers:
        size += _HEADER_OVERHEAD_BYTES_MAX + _UTF8_BYTES_MAX * len(name) + (len(content) if content else 0)
    return size


_Column = bytes | Iterable[bytes]
"""One piece of every record: bytes that all records share, or an iterable with one item per record."""


def _encode_records(records: Sequence[RawRecord], offset_deltas: Sequence[int]) -> tuple[Sequence[int], bytes]:
    """Returns the timestamps, and all records encoded. Encodes column by column; most steps run in C."""
    timestamps_ms, keys, values, headers = zip(*records, strict=True)
    base_timestamp_ms = timestamps_ms[0]
    columns: list[_Column] = [
        _ATTRIBUTES,
        _encode_numbers([timestamp_ms - base_timestamp_ms for timestamp_ms in timestamps_ms]),
        map(varint_of, offset_deltas),
        *_encode_nullable(keys),
        *_encode_nullable(values),
        map(encode_headers, headers) if any(headers) else _NO_HEADERS,
    ]
    bodies = list(map(b"".join, zip(*_merge_constants(columns), strict=False)))
    lengths = map(varint_of, map(len, bodies))
    return timestamps_ms, b"".join(chain.from_iterable(zip(lengths, bodies, strict=True)))


def _merge_constants(columns: list[_Column]) -> Iterator[Iterable[bytes]]:
    """Joins neighbouring constant columns, so that each record has fewer pieces to join."""
    for is_constant, group in groupby(columns, key=lambda column: isinstance(column, bytes)):
        if is_constant:
            yield repeat(b"".join(cast("Iterator[bytes]", group)))
        else:
            yield from cast("Iterator[Iterable[bytes]]", group)


def _encode_numbers(numbers: list[int]) -> _Column:
    if numbers.count(numbers[0]) == len(numbers):
        return varint_of(numbers[0])
    return map(varint_of, numbers)


def _encode_nullable(contents: Sequence[bytes | None]) -> tuple[_Column, ...]:
    """Returns the columns of one nullable field: the lengths and, unless all are null, the contents."""
    nulls = contents.count(None)
    if nulls == len(contents):
        return (_NULL,)
    if nulls:
        return (map(_encode_nullable_content, contents),)
    present = cast("Sequence[bytes]", contents)
    return _encode_numbers(list(map(len, present))), present


def _encode_nullable_content(content: bytes | None) -> bytes:
    return _NULL if content is None else varint_of(len(content)) + content


def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Encodes headers, preceded by their count, as a record contains them."""
    pieces = [varint_of(len(headers))]
    for name, content in headers:
        encoded_name = name.encode()
        pieces += varint_of(len(encoded_name)), encoded_name, _encode_nullable_content(content)
    return b"".join(pieces)
