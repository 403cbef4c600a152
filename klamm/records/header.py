"""Reads, checks and patches the 61 header bytes of a record batch.

    at  bytes  field                     at  bytes  field
     0      8  base_offset               27      8  base_timestamp_ms
     8      4  batch_length (after it)   35      8  max_timestamp_ms
    12      4  partition_leader_epoch    43      8  producer_id
    16      1  magic = 2                 51      2  producer_epoch
    17      4  crc (CRC-32C of 21..end)  53      4  base_sequence
    21      2  attributes                57      4  record_count
    23      4  last_offset_delta         61      …  records

    attributes: bits 0-2 compression, 3 timestamp type, 4 transactional, 5 control, 6 the base timestamp is the
    delete horizon (`BatchHeader.delete_horizon_ms`)

All integers are big-endian and, but for the crc, signed. The first 16 bytes lie outside the checksum: a
broker assigns offsets and its leader epoch without looking at the rest, and without touching it.
Follows `org.apache.kafka.common.record.DefaultRecordBatch` (KIP-98)."""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from klamm.checksum import crc32c
from klamm.records.compression import CompressionType
from klamm.records.errors import (
    ChecksumMismatchError,
    InvalidHeaderError,
    TruncatedBatchError,
    UnsupportedCompressionError,
    UnsupportedMagicError,
)

Buffer = bytes | bytearray | memoryview
"""The buffers from which batches are read. A memoryview must have single bytes as items."""

MAGIC: Final = 2
HEADER_SIZE_BYTES: Final = 61
LENGTH_OVERHEAD_BYTES: Final = 12
"""The bytes that `batch_length` does not count: the base offset and the length itself."""
PREFIX_SIZE_BYTES: Final = 16
"""The size of base offset, length and leader epoch. They are before the magic byte, and outside the checksum."""

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
CRC: Final = struct.Struct(">I")
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
"""The position at which the bytes of the checksum begin."""
_PREFIX: Final = struct.Struct(">qii")
_BASE_OFFSET: Final = struct.Struct(">q")
_BATCH_LENGTH: Final = struct.Struct(">i")
_BATCH_LENGTH_POSITION: Final = 8
_LEADER_EPOCH: Final = struct.Struct(">i")
_ATTRIBUTES: Final = struct.Struct(">h")
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_LEADER_EPOCH_POSITION: Final = 12
_MAX_TIMESTAMP_POSITION: Final = 35

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_SEQUENCE: Final = -1
SEQUENCE_MAX: Final = 2**31 - 1


class TimestampType(enum.IntEnum):
    """The source of a record's timestamp: the client or the broker (`message.timestamp.type`)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


def increment_sequence(sequence: int, increment: int) -> int:
    """Returns the sequence after `increment` records. After 2^31 - 1 comes 0."""
    return (sequence + increment) & SEQUENCE_MAX


class BatchHeader(NamedTuple):
    """The fields of a batch header, as they are stored."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch, including the header."""
        return self.batch_length + LENGTH_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        """The offset of the last record when the batch was written. Compaction may have removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the last record of this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, or -1 if the batch has no sequences."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def compression(self) -> CompressionType:
        """The compression type. Raises UnsupportedCompressionError for an unknown number."""
        return _compression(self)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_MASK else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_MASK)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which compaction may drop the batch's tombstones (KIP-534), or None until compaction has seen
        them."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON_MASK else None


_header_of = partial(tuple.__new__, BatchHeader)


def _compression(header: BatchHeader) -> CompressionType:
    number = header.attributes & COMPRESSION_MASK
    try:
        return CompressionType(number)
    except ValueError:
        raise UnsupportedCompressionError(
            f"batch at offset {header.base_offset} has compression {number}; expected 0 to {max(CompressionType)}"
        ) from None


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Returns the header of the batch at `position`. The records need not be in `buffer`.

    Raises TruncatedBatchError if fewer than 61 bytes are left, UnsupportedMagicError, or InvalidHeaderError if the
    length is impossible."""
    if len(buffer) - position < HEADER_SIZE_BYTES:
        raise TruncatedBatchError(
            f"{max(0, len(buffer) - position)} bytes at position {position}; a batch header takes {HEADER_SIZE_BYTES}"
        )
    header: BatchHeader = _header_of(HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise UnsupportedMagicError(f"magic {header.magic} at position {position}; expected {MAGIC}")
    if header.batch_length < HEADER_SIZE_BYTES - LENGTH_OVERHEAD_BYTES:
        raise InvalidHeaderError(
            f"batch length {header.batch_length} at position {position}; "
            f"the header alone takes {HEADER_SIZE_BYTES - LENGTH_OVERHEAD_BYTES}"
        )
    return header


def read_whole(buffer: Buffer, position: int) -> BatchHeader:
    """Returns the header like `read_header`. Also raises TruncatedBatchError unless the whole batch is in `buffer`."""
    header = read_header(buffer, position)
    if position + header.batch_length + LENGTH_OVERHEAD_BYTES > len(buffer):
        raise TruncatedBatchError(
            f"batch at offset {header.base_offset} takes {header.size_bytes} bytes; "
            f"{len(buffer) - position} are left at position {position}"
        )
    return header


def iter_headers(buffer: Buffer, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """Yields position and header of each batch in `buffer[position:end]`, which has whole batches only.

    Raises the errors of `read_header`. If the last batch is incomplete, raises TruncatedBatchError after the batches
    before it."""
    view = memoryview(buffer)[: len(buffer) if end is None else end]
    while position < len(view):
        header = read_whole(view, position)
        yield position, header
        position += header.size_bytes


def last_header(buffer: Buffer) -> BatchHeader | None:
    """Returns the header of the last batch in `buffer`, which has whole batches only. Returns None if it is empty.

    Reads only the lengths of the other batches. Raises the errors of `read_header`."""
    position = following = 0
    while following < len(buffer):
        position = following
        if len(buffer) - position < HEADER_SIZE_BYTES:
            break
        following += max(0, _BATCH_LENGTH.unpack_from(buffer, position + _BATCH_LENGTH_POSITION)[0])
        following += LENGTH_OVERHEAD_BYTES
    return read_whole(buffer, position) if buffer else None


def verify_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raises ChecksumMismatchError if the checksum is wrong. Reads the batch once, without a copy."""
    end = position + header.batch_length + LENGTH_OVERHEAD_BYTES
    actual = crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : end])
    if actual != header.crc:
        raise ChecksumMismatchError(
            f"batch at offset {header.base_offset} states CRC-32C {header.crc:#010x}; its bytes have {actual:#010x}"
        )


def check_counts(header: BatchHeader, *, allow_gaps: bool) -> None:
    """Checks that the record count fits the offsets. With `allow_gaps`, a compacted batch may have fewer records, or
    none.

    Raises InvalidHeaderError."""
    offsets_spanned = header.last_offset_delta + 1
    count = header.record_count
    if count == offsets_spanned > 0 or (allow_gaps and 0 <= count <= offsets_spanned and offsets_spanned > 0):
        return
    raise InvalidHeaderError(
        f"batch at offset {header.base_offset} states {count} records and last offset delta "
        f"{header.last_offset_delta}; expected {'at most' if allow_gaps else 'exactly'} {offsets_spanned}"
    )


def validate_batch(buffer: Buffer, position: int = 0, *, allow_gaps: bool = False) -> BatchHeader:
    """Checks everything about the batch at `position` except its records, and returns its header.

    It checks header, checksum, record count and compression. `allow_gaps` accepts compacted batches: set it for batches
    from a log, not for those from a producer. Raises a CorruptBatchError."""
    header = read_whole(buffer, position)
    verify_crc(buffer, position, header)
    check_counts(header, allow_gaps=allow_gaps)
    if header.attributes & COMPRESSION_MASK:
        _compression(header)
    return header


def offset_prefix(base_offset: int, batch_length: int, partition_leader_epoch: int) -> bytes:
    """Returns the first 16 bytes of a batch.

    To give an immutable batch its offset, write these bytes before `memoryview(batch)[16:]`."""
    return _PREFIX.pack(base_offset, batch_length, partition_leader_epoch)


def assign_offset(
    buffer: bytearray | memoryview, position: int = 0, *, base_offset: int, partition_leader_epoch: int
) -> None:
    """Patches the base offset and the leader epoch in place. The checksum does not cover them."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + _LEADER_EPOCH_POSITION, partition_leader_epoch)


def set_log_append_time(batch: bytearray | memoryview, append_time_ms: int) -> None:
    """Sets the broker's timestamp in one whole batch, in place. All its records then have this time."""
    _set_timestamps(batch, TIMESTAMP_TYPE_MASK, append_time_ms)


def set_create_time(batch: bytearray | memoryview, max_timestamp_ms: int) -> None:
    """Lets the records of one whole batch have their own timestamps, in place. `max_timestamp_ms` is the largest of
    them."""
    _set_timestamps(batch, 0, max_timestamp_ms)


def _set_timestamps(batch: bytearray | memoryview, timestamp_type: int, max_timestamp_ms: int) -> None:
    (attributes,) = _ATTRIBUTES.unpack_from(batch, ATTRIBUTES_POSITION)
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_POSITION, attributes & ~TIMESTAMP_TYPE_MASK | timestamp_type)
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_POSITION, max_timestamp_ms)
    CRC.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
