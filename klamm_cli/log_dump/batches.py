"""The batches of a `.log` file, one line each, and on demand their records.

Where the bytes are not a batch, the dump prints place and cause, and continues at the next whole batch. An incomplete
batch at the end of a log's newest segment is not damage: an append may be under way, or a crash interrupted it. The
next start of the broker truncates it.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from klamm.errors import KlammError
from klamm.records import (
    HEADER_SIZE_BYTES,
    BatchHeader,
    CorruptBatchError,
    Record,
    TimestampType,
    TruncatedBatchError,
    UnsupportedCompressionError,
    decode_batch,
    increment_sequence,
    validate_batch,
)
from klamm.records.control import decode_control_record
from klamm.records.header import LENGTH_OVERHEAD_BYTES, MAGIC, PREFIX_SIZE_BYTES
from klamm_broker.log.segment.batch_scan import CHECKED_CHUNK_BYTES, scan_batches
from klamm_cli.log_dump import line
from klamm_cli.log_dump.line import DumpLine, LineKind
from klamm_server.runtime.disk import Disk

Decoder = Callable[[bytes | None, bytes | None], tuple[object, object]]
"""Returns what to show of a record's key and value. Raises a KlammError if they cannot be parsed."""

_OFFSET_AND_LENGTH = struct.Struct(">qi")
_POSITION_IN_CHUNK = re.compile(r" at position \d+")
"""Matches the position in the error of a reader. The dump removes it, because readers count from the beginning of a
chunk, not of the file."""


class Gap(NamedTuple):
    """Bytes from `position` to `end` that are no batch."""

    position: int
    end: int
    reason: CorruptBatchError
    is_zeros: bool


class Found(NamedTuple):
    """A batch that has not been validated yet."""

    position: int
    header: BatchHeader
    data: memoryview


def dump_log(
    disk: Disk, path: str, *, base_offset: int, is_newest: bool, decoder: Decoder | None
) -> Iterator[DumpLine]:
    """Yields the lines for one `.log` file. If `decoder` is None, the records are left out. Raises OSError."""
    fd = disk.open(path, os.O_RDONLY)
    try:
        end = os.fstat(fd).st_size
        expected = base_offset
        for found in walk(disk, fd, end, base_offset):
            if isinstance(found, Gap):
                yield _gap_line(path, found, is_newest and found.end == end)
                continue
            yield from _batch_lines(path, found, expected, decoder)
            expected = max(expected, found.header.next_offset)
    finally:
        disk.close(fd)


def walk(disk: Disk, fd: int, end: int, base_offset: int) -> Iterator[Found | Gap]:
    """Yields the batches in `[0, end)` of a `.log` file, and the gaps between them."""
    position, expected = 0, base_offset
    while position < end:
        try:
            for at, header, batch in scan_batches(disk, fd, position, end, CHECKED_CHUNK_BYTES):
                yield Found(at, header, batch)
                position, expected = at + header.size_bytes, header.next_offset
        except CorruptBatchError as error:
            following, is_zeros = _find_batch(disk, fd, position, end, expected)
            yield Gap(position, following, error, is_zeros)
            position = following


def _find_batch(disk: Disk, fd: int, damaged: int, end: int, expected: int) -> tuple[int, bool]:
    """Returns the position of the next whole batch after `damaged`, or `end`, and whether only zeros come before it.
    The batch must begin at offset `expected` or later."""
    is_zeros = True
    for at in range(damaged, end, CHECKED_CHUNK_BYTES):
        # Read a little more than a chunk, because a header may begin at the chunk's end.
        chunk = disk.read_all(fd, min(CHECKED_CHUNK_BYTES + HEADER_SIZE_BYTES, end - at), at)
        found = chunk.find(MAGIC, PREFIX_SIZE_BYTES)
        while found >= 0:
            start = found - PREFIX_SIZE_BYTES
            if at + start > damaged and _is_batch(disk, fd, chunk, start, at, end, expected):
                return at + start, is_zeros and not any(chunk[:start])
            found = chunk.find(MAGIC, found + 1)
        is_zeros = is_zeros and not any(chunk)
    return end, is_zeros


def _is_batch(disk: Disk, fd: int, chunk: bytes, start: int, chunk_position: int, end: int, expected: int) -> bool:
    base_offset, batch_length = _OFFSET_AND_LENGTH.unpack_from(chunk, start)
    position, size_bytes = chunk_position + start, batch_length + LENGTH_OVERHEAD_BYTES
    if base_offset < expected or size_bytes < HEADER_SIZE_BYTES or position + size_bytes > end:
        return False
    try:
        validate_batch(disk.read_all(fd, size_bytes, position), allow_gaps=True)
    except CorruptBatchError:
        return False
    return True


def _gap_line(path: str, gap: Gap, is_tail: bool) -> DumpLine:
    size = gap.end - gap.position
    if is_tail and gap.is_zeros:
        return line.note(path, f"{size} zero bytes at the end: preallocated, or a crash", gap.position)
    if is_tail and isinstance(gap.reason, TruncatedBatchError):
        return line.note(path, f"torn tail of {size} bytes: an append under way, or cut off by a crash", gap.position)
    reason = _POSITION_IN_CHUNK.sub("", str(gap.reason))
    return line.damage(path, f"{size} bytes are no batch: {reason}", gap.position)


def _batch_lines(path: str, found: Found, expected: int, decoder: Decoder | None) -> Iterator[DumpLine]:
    header, problem = found.header, ""
    try:
        validate_batch(found.data, allow_gaps=True)
    except CorruptBatchError as error:
        problem = str(error)
    yield DumpLine(LineKind.BATCH, _batch_fields(found, is_valid=not problem))
    if header.base_offset < expected:
        yield line.damage(path, f"offset {header.base_offset} where {expected} or more is expected", found.position)
    if problem:
        yield line.damage(path, problem, found.position)
    elif decoder is not None:
        yield from _record_lines(path, found, decoder)


def _batch_fields(found: Found, *, is_valid: bool) -> dict[str, object]:
    header = found.header
    horizon = {} if header.delete_horizon_ms is None else {"deleteHorizonMs": header.delete_horizon_ms}
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        **horizon,
        "position": found.position,
        _time_name(header): header.max_timestamp_ms,
        "size": header.size_bytes,
        "magic": header.magic,
        "compresscodec": _codec(header),
        "crc": header.crc,
        "isvalid": is_valid,
    }


def _codec(header: BatchHeader) -> str:
    try:
        return header.compression.name.lower()
    except UnsupportedCompressionError:
        return "unknown"


def _time_name(header: BatchHeader) -> str:
    return "LogAppendTime" if header.timestamp_type is TimestampType.LOG_APPEND_TIME else "CreateTime"


def _record_lines(path: str, found: Found, decoder: Decoder) -> Iterator[DumpLine]:
    try:
        records = decode_batch(found.data, check_crc=False)
    except CorruptBatchError as error:
        yield line.damage(path, str(error), found.position)
        return
    for record in records:
        try:
            shown = _control_fields(record) if found.header.is_control else _data_fields(record, decoder)
        except KlammError as error:
            yield line.damage(path, f"the record at offset {record.offset}: {error}", found.position)
            continue
        yield DumpLine(LineKind.RECORD, {**_record_fields(record, found.header), **shown})


def _record_fields(record: Record, header: BatchHeader) -> dict[str, object]:
    sequence = header.base_sequence
    if sequence >= 0:
        sequence = increment_sequence(sequence, record.offset - header.base_offset)
    return {
        "offset": record.offset,
        _time_name(header): record.timestamp_ms,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
        "sequence": sequence,
    }


def _data_fields(record: Record, decoder: Decoder) -> dict[str, object]:
    key, payload = decoder(record.key, record.value)
    return {"headers": [list(pair) for pair in record.headers], "key": key, "payload": payload}


def _control_fields(record: Record) -> dict[str, object]:
    marker = decode_control_record(record.key, record.value)
    return {"endTxnMarker": marker.type.name, "coordinatorEpoch": marker.coordinator_epoch}
