"""Reads the records of a batch in pieces, so that a batch of gigabytes takes some megabytes of memory.

The input is the decompressed bytes in pieces of any size (`open_decompressed`). The output is pieces of whole records,
for the functions that read whole batches (`part_header`). A record that is larger than a piece is left out of it. A
short record with its timestamp, offset and key, and without headers, takes its place. It has a value of no bytes unless
the value is null.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from klamm.records.errors import InvalidRecordError
from klamm.records.header import BatchHeader
from klamm.records.record import RECORD_SIZE_BYTES_MIN
from klamm.records.record_times import RUN_RECORDS_MIN, find_run
from klamm.records.varint import (
    LENGTH_1,
    LENGTH_2,
    VARLONG_BYTES_MAX,
    decode_length,
    decode_varint,
    encode_varint,
)

LONG_RECORD_BYTES: Final = 1024 * 1024
"""A record of more bytes may be left out of a piece."""
_GROWTH_BYTES_MIN: Final = 256 * 1024
"""The bytes that are added at once. With less, the beginning of a record would be copied more often."""
_PATIENCE_FACTOR: Final = 4
_PATIENCE_MAX: Final = 1_024
_LENGTH_BYTES_MIN: Final = RECORD_SIZE_BYTES_MIN - 1
"""The smallest length that a record states, which does not count the length itself."""
_AFTER_KEY_BYTES_MIN: Final = 2
_INT32_MAX: Final = 2**31 - 1
_NULL: Final = b"\x01"
_EMPTY: Final = b"\x00"


class LongRecord(NamedTuple):
    """The bytes of a record that is left out of its piece."""

    head: bytes
    """The bytes from the length to the end of the key."""
    rest: Iterator[bytes]
    """The bytes after the key, in pieces. They must be read before the next piece of records is."""


class RecordPiece(NamedTuple):
    """Some successive records of a batch."""

    data: bytes
    record_count: int
    long: LongRecord | None = None
    """The record that `data` stands for, if it is too long for a piece."""


def part_header(header: BatchHeader, piece: RecordPiece) -> BatchHeader:
    """Returns the header of a batch that has only the records of the piece."""
    return header._replace(record_count=piece.record_count)


def record_pieces(
    header: BatchHeader, data: Iterator[bytes], *, with_keys: bool, max_record_bytes: int = _INT32_MAX
) -> Iterator[RecordPiece]:
    """Yields all records of the batch with this `header`. Without `with_keys`, the key of a long record is empty or
    null, and `long` is None.

    Raises the exceptions of `data`. Raises InvalidRecordError if the header's number of records do not fill the data,
    or if a record exceeds `max_record_bytes` (`check_record_sizes`)."""
    rest = _Bytes(data)
    left = header.record_count
    while left:
        count, end = _count_whole(rest.data, left)
        if count:
            left -= count
            piece = RecordPiece(rest.take(end), count)
            if end > max_record_bytes:
                check_record_sizes(piece.data, count, max_record_bytes)
            yield piece
        elif len(rest.data) > LONG_RECORD_BYTES:
            left -= 1
            yield _long_piece(rest, max_record_bytes, with_keys=with_keys)
            rest.skip_owed()
        elif not rest.grow():
            raise _wrong_end(header)
    if rest.data or rest.grow():
        raise _wrong_end(header)


def check_record_sizes(data: bytes, record_count: int, max_record_bytes: int) -> None:
    """Raises InvalidRecordError if a record in `data` states more than `max_record_bytes`. That size does not count the
    length itself. Records that are not whole are left to other checks."""
    at = 0
    try:
        for _ in range(record_count):
            length, at = decode_length(data, at)
            _check_size(length, max_record_bytes)
            at += max(0, length)
    except IndexError:
        return


def _check_size(length: int, max_record_bytes: int) -> None:
    if length > max_record_bytes:
        raise InvalidRecordError(
            f"a record has {length} bytes when decompressed; expected at most"
            f" max.decompressed.message.bytes={max_record_bytes}"
        )


class _Bytes:
    """The data that are not read yet. `data` has some of them."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.data = b""
        self.owed = 0
        """The number of bytes at the beginning that belong to a record that was begun."""
        self._pieces = pieces

    def grow(self) -> bool:
        """Adds bytes to `data`. Returns False if there are no more."""
        parts, size_bytes = [self.data], 0
        for piece in self._pieces:
            parts.append(piece)
            size_bytes += len(piece)
            if size_bytes >= _GROWTH_BYTES_MIN:
                break
        self.data = b"".join(parts)
        return size_bytes > 0

    def take(self, count: int) -> bytes:
        """Removes and returns the next `count` bytes. Raises InvalidRecordError if there are fewer."""
        return b"".join(self._parts(count))

    def owed_parts(self) -> Iterator[bytes]:
        """Removes and yields the bytes that are owed."""
        while self.owed:
            for part in self._parts(min(self.owed, _GROWTH_BYTES_MIN)):
                self.owed -= len(part)
                yield part

    def skip_owed(self) -> None:
        """Removes the bytes that are owed."""
        for _ in self.owed_parts():
            pass

    def _parts(self, count: int) -> Iterator[bytes]:
        while count:
            if not self.data and not self.grow():
                raise InvalidRecordError(f"the records end {count} bytes before the end of the last one")
            part, self.data = self.data[:count], self.data[count:]
            count -= len(part)
            yield part


def _count_whole(data: bytes, count_max: int) -> tuple[int, int]:
    """Returns the number of whole records at the beginning of `data`, up to `count_max`, and the position after them.
    Raises InvalidRecordError if a record is too short."""
    at, left, patience = 0, count_max, RUN_RECORDS_MIN
    try:
        while left:
            run = find_run(data, at, left) if left >= RUN_RECORDS_MIN else None
            if run is not None:
                at, left = run.end, left - run.record_count
                continue
            wanted = min(left, patience)
            count, at = _count_each(data, at, wanted)
            left -= count
            if count < wanted:
                break
            patience = min(patience * _PATIENCE_FACTOR, _PATIENCE_MAX)
    except IndexError:
        pass
    return count_max - left, at


def _count_each(data: bytes, position: int, count_max: int) -> tuple[int, int]:
    """Counts whole records one by one."""
    at, size = position, len(data)
    for number in range(count_max):
        if at >= size:
            return number, at
        low = data[at]
        if low < 128:
            length, body_at = LENGTH_1[low], at + 1
        elif at + 1 < size and (high := data[at + 1]) < 128:
            length, body_at = LENGTH_2[high][low], at + 2
        else:
            try:
                length, body_at = decode_length(data, at)
            except IndexError:
                return number, at
        if length < _LENGTH_BYTES_MIN:
            raise InvalidRecordError(f"a record states {length} bytes; expected at least {_LENGTH_BYTES_MIN}")
        if body_at + length > size:
            return number, at
        at = body_at + length
    return count_max, at


def _long_piece(rest: _Bytes, max_record_bytes: int, *, with_keys: bool) -> RecordPiece:
    """Returns the piece of the long record at the beginning. `rest` then owes the bytes after its key."""
    data = rest.data
    length, body_at = decode_length(data, 0)
    _check_size(length, max_record_bytes)
    _, offset_at = decode_varint(data, body_at + 1, VARLONG_BYTES_MAX)
    _, key_length_at = decode_varint(data, offset_at)
    key_length, key_at = decode_length(data, key_length_at)
    after_key_bytes = body_at + length - key_at - max(0, key_length)
    if after_key_bytes < _AFTER_KEY_BYTES_MIN:
        raise InvalidRecordError(f"a record of {length} bytes has a key of {key_length} bytes")
    fields = data[body_at:key_length_at]
    if not with_keys:
        rest.take(key_at)
        rest.owed = body_at + length - key_at
        return RecordPiece(_short(fields, None if key_length < 0 else b"", _EMPTY), 1)
    head = rest.take(key_at + max(0, key_length))
    rest.owed = after_key_bytes
    if not rest.data and not rest.grow():
        raise InvalidRecordError("the records end after a key")
    value = _NULL if rest.data[:1] == _NULL else _EMPTY
    key = None if key_length < 0 else head[key_at:]
    return RecordPiece(_short(fields, key, value), 1, LongRecord(head, rest.owed_parts()))


def _short(fields: bytes, key: bytes | None, value: bytes) -> bytes:
    """Returns a record with these bytes from the attributes to the offset, and without headers."""
    encoded_key = _NULL if key is None else encode_varint(len(key)) + key
    body = b"".join((fields, encoded_key, value, b"\x00"))
    return encode_varint(len(body)) + body


def _wrong_end(header: BatchHeader) -> InvalidRecordError:
    return InvalidRecordError(
        f"the {header.record_count} records at offset {header.base_offset} do not end where their bytes do"
    )
