"""The variable-length integers of the record format: zigzag, then base 128, least significant first.

Zigzag maps 0, -1, 1, -2 … to 0, 1, 2, 3 …, so small numbers of either sign take one byte. Lengths and offset
deltas are at most 32 bits wide (five bytes), timestamp deltas 64 bits (ten bytes); a longer one is an error.
Same as `org.apache.kafka.common.utils.ByteUtils`.

Nearly all numbers have one or two bytes. The loops that read and write records look them up in the tables below,
because a function call costs more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from klamm.records.errors import InvalidRecordError

Bytes = bytes | bytearray | memoryview

VARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10
_BITS: Final = {VARINT_BYTES_MAX: 32, VARLONG_BYTES_MAX: 64}

NO_LENGTH: Final = 1 << 40
"""Stands for a length below -1. It is beyond the end of any data, so a reader that uses it finds the record broken."""


def encode_varint(value: int) -> bytes:
    """Returns the one to ten bytes of a signed number of at most 64 bits."""
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
    """Returns the number at `position`, and the position after it.

    Raises InvalidRecordError if the number is too wide for `bytes_max` (32 bits for five bytes, 64 for ten). Raises
    IndexError if `data` ends inside it."""
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
    """Returns a length like `decode_varint`. A length below -1 becomes NO_LENGTH."""
    length, position = decode_varint(data, position)
    return (length if length >= -1 else NO_LENGTH), position


def _unzigzag(raw: int) -> int:
    return (raw >> 1) ^ -(raw & 1)


_KEPT: Final = range(-64, 1 << 13)


class _Encoded(dict[int, bytes]):
    """Caches the encoding of small numbers. Other numbers are encoded each time, because there are too many to keep."""

    def __missing__(self, value: int) -> bytes:
        encoded = encode_varint(value)
        if value in _KEPT:
            self[value] = encoded
        return encoded


varint_of: Final[Callable[[int], bytes]] = _Encoded().__getitem__
"""Returns the encoding of a number, fast for small numbers. It is made for `map`."""

_NUMBERS: Final = [_unzigzag(raw) for raw in range(1 << 14)]
_LENGTHS: Final = [number if number >= -1 else NO_LENGTH for number in _NUMBERS]


def _by_second_byte(numbers: list[int]) -> tuple[tuple[int, ...], ...]:
    """Returns a row of numbers for each second byte. A first byte has the same value with and without its continuation
    bit, so both positions of a row hold the same object."""
    return tuple(tuple(numbers[begin : begin + 128]) * 2 for begin in range(0, len(numbers), 128))


NUMBER_1: Final = tuple(_NUMBERS[:128])
NUMBER_2: Final = _by_second_byte(_NUMBERS)
"""Numbers of two bytes: `NUMBER_2[second byte][first byte]`. The first byte still has its continuation bit."""

LENGTH_1: Final = tuple(_LENGTHS[:128])
LENGTH_2: Final = _by_second_byte(_LENGTHS)
"""Lengths of two bytes, like `NUMBER_2`, as `decode_length` returns them."""
