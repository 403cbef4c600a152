"""Writes a batch again: with some of its records, for log compaction, or with another compression.

The offsets of records stay the same, and so do base offset, last offset, sequence and producer of the batch. So encoded
records are copied, and only the header is new. With a delete horizon (KIP-534) the base timestamp is the horizon, and
the timestamps of the records are encoded again, relative to it. Follows `MemoryRecords.filterTo`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
from klamm.records.piece_compressor import PieceCompressor
from klamm.records.pieces import RecordPiece
from klamm.records.varint import VARLONG_BYTES_MAX, decode_length, decode_varint, varint_of


def retain_records(
    header: BatchHeader, records: RecordKeys, indexes: Sequence[int], *, delete_horizon_ms: int | None = None
) -> bytes:
    """Returns the batch with the records at `indexes` (ascending, at least one), compressed as before.

    `delete_horizon_ms` sets the delete horizon if the batch has none. An existing horizon stays."""
    assert indexes, f"no record is left of the batch at offset {header.base_offset}"
    deltas = records.timestamp_deltas
    largest_delta = max([deltas[index] for index in indexes])
    section = _section(header, records, indexes, delete_horizon_ms)
    return _encode(
        _retaining(header, len(indexes), largest_delta, delete_horizon_ms), compress(header.compression, section)
    )


class PieceRetainer:
    """Writes a batch with some of its records, like `retain_records`, from pieces of records (`record_pieces`).

    Only the compressed records are in memory."""

    def __init__(self, header: BatchHeader, *, delete_horizon_ms: int | None = None) -> None:
        self._header = header
        self._delete_horizon_ms = delete_horizon_ms
        self._compressor = PieceCompressor(header.compression)
        self._record_count = 0
        self._largest_delta = 0

    def add(self, piece: RecordPiece, records: RecordKeys, indexes: Sequence[int]) -> None:
        """Adds the records of `piece` at `indexes`. `records` are those of the piece."""
        if not indexes:
            return
        largest_delta = max([records.timestamp_deltas[index] for index in indexes])
        self._largest_delta = max(largest_delta, self._largest_delta) if self._record_count else largest_delta
        self._record_count += len(indexes)
        if piece.long is None:
            self._compressor.write(_section(self._header, records, indexes, self._delete_horizon_ms))
            return
        self._compressor.write(self._head(piece.long.head, records.timestamp_deltas[0]))
        for part in piece.long.rest:
            self._compressor.write(part)

    def finish(self) -> bytes:
        """Returns the batch with the records that were added, at least one."""
        header = self._header
        assert self._record_count, f"no record is left of the batch at offset {header.base_offset}"
        retaining = _retaining(header, self._record_count, self._largest_delta, self._delete_horizon_ms)
        return _encode(retaining, self._compressor.finish())

    def _head(self, head: bytes, timestamp_delta: int) -> bytes:
        if self._delete_horizon_ms is None:
            return head
        length, at = decode_length(head, 0)
        _, offset_at = decode_varint(head, at + 1, VARLONG_BYTES_MAX)
        delta = varint_of(timestamp_delta + self._header.base_timestamp_ms - self._delete_horizon_ms)
        length += len(delta) - (offset_at - at - 1)
        return b"".join((varint_of(length), head[at : at + 1], delta, head[offset_at:]))


def _section(header: BatchHeader, records: RecordKeys, indexes: Sequence[int], delete_horizon_ms: int | None) -> bytes:
    if delete_horizon_ms is not None:
        return _rebased(records, indexes, header.base_timestamp_ms - delete_horizon_ms)
    data, starts = records.data, records.starts
    return b"".join([data[starts[index] : starts[index + 1]] for index in indexes])


def _retaining(
    header: BatchHeader, record_count: int, largest_delta: int, delete_horizon_ms: int | None
) -> BatchHeader:
    """Returns the header of the batch with `record_count` records, whose largest timestamp delta is `largest_delta`."""
    max_timestamp_ms = header.max_timestamp_ms
    if header.timestamp_type is TimestampType.CREATE_TIME:
        max_timestamp_ms = header.base_timestamp_ms + largest_delta
    retaining = header._replace(max_timestamp_ms=max_timestamp_ms, record_count=record_count)
    if delete_horizon_ms is None:
        return retaining
    assert header.delete_horizon_ms is None, header
    attributes = header.attributes | DELETE_HORIZON_MASK
    return retaining._replace(base_timestamp_ms=delete_horizon_ms, attributes=attributes)


def recompress(header: BatchHeader, records: bytes, compression: CompressionType) -> bytes:
    """Returns the batch with the decompressed `records` in another compression. All other fields stay the same."""
    attributes = header.attributes & ~COMPRESSION_MASK | compression
    return _encode(header._replace(attributes=attributes), compress(compression, records))


def recompress_pieces(
    header: BatchHeader, pieces: Iterable[bytes], compression: CompressionType, *, max_bytes: int
) -> bytes | None:
    """Returns the batch like `recompress`, from decompressed records in pieces. Returns None if the batch would have
    more than `max_bytes`. Raises the exceptions of `pieces`."""
    compressor = PieceCompressor(compression)
    for piece in pieces:
        compressor.write(piece)
        if compressor.size_bytes > max_bytes:
            return None
    attributes = header.attributes & ~COMPRESSION_MASK | compression
    batch = _encode(header._replace(attributes=attributes), compressor.finish())
    return batch if len(batch) <= max_bytes else None


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
