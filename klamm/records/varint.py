"""Variable-length integers as the record format has them: zigzag, then base 128, least significant first.

Zigzag maps 0, -1, 1, -2 … to 0, 1, 2, 3 …, so small numbers of either sign take one byte. Lengths and offset
deltas are at most 32 bits wide (five bytes), timestamp deltas 64 bits (ten bytes); a longer one is an error.
Same as `org.apache.kafka.common.utils.ByteUtils`.

Numbers of one and two bytes, nearly all there are, are looked up in the tables below, by the loops that read
and write records themselves: a function call costs more than the look-up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from klamm.records.errors import InvalidRecordError

Bytes = bytes | bytearray | memoryview

VARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10
_BITS: Final = {VARINT_BYTES_MAX: 32, VARLONG_BYTES_MAX: 64}

NO_LENGTH: Final = 1 << 40
"""Stands for a length below -1: reaches past any data, so a reader that follows it finds the record broken."""


def encode_varint(value: int) -> bytes:
    """One to ten bytes; `value` is at most 64 bits wide, signed."""
    raw = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while raw > 0x7F:
        encoded.append(raw & 0x7F | 0x80)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)


def decode_varint(
    data: bytes | bytearray | memoryview, position: int, bytes_max: int = VARINT_BYTES_MAX
) -> tuple[int, int]:
    """The number at `position`, and the position after it.

    Raises InvalidRecordError when it is wider than what `bytes_max` stands for (32 bits for five bytes, 64
    for ten), IndexError when `data` ends inside it.
    """
    raw = shift = 0
    for at in range(position, position + bytes_max):
        byte = data[at]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> _BITS[bytes_max]:
                break
            return (raw >> 1) ^ -(raw & 1), at + 1
        shift += 7
    raise InvalidRecordError(f"the number at byte {position} of the records has more than {_BITS[bytes_max]} bits")


def decode_length(data: Bytes, position: int) -> tuple[int, int]:
    """Like `decode_varint`; a length below -1 becomes NO_LENGTH."""
    length, position = decode_varint(data, position)
    return (length if length >= -1 else NO_LENGTH), position


def _unzigzag(raw: int) -> int:
    return (raw >> 1) ^ -(raw & 1)


_KEPT: Final = range(-64, 1 << 13)


class _Encoded(dict[int, bytes]):
    """Small numbers are encoded once and then looked up; others are encoded each time (there are too many to keep)."""

    def __missing__(self, value: int) -> bytes:
        encoded = encode_varint(value)
        if value in _KEPT:
            self[value] = encoded
        return encoded


varint_of: Final[Callable[[int], bytes]] = _Encoded().__getitem__
"""`encode_varint`, fast for the numbers that are usual; made for `map`."""

_NUMBERS: Final = [_unzigzag(raw) for raw in range(1 << 14)]
_LENGTHS: Final = [number if number >= -1 else NO_LENGTH for number in _NUMBERS]


def _by_second_byte(numbers: list[int]) -> tuple[tuple[int, ...], ...]:
    """Returns a row of numbers for each second byte. A first byte has the same value with and without its continuation
    bit, so both positions of a row hold the same object."""
    return tuple(tuple(numbers[begin : begin + 128]) * 2 for begin in range(0, len(numbers), 128))


NUMBER_1: Final = tuple(_NUMBERS[:128])
NUMBER_2: Final = _by_second_byte(_NUMBERS)
"""`NUMBER_2[second byte][first byte]`, the first one with its continuation bit still set."""

LENGTH_1: Final = tuple(_LENGTHS[:128])
LENGTH_2: Final = _by_second_byte(_LENGTHS)
"""The same two for lengths, as `decode_length` gives them."""
