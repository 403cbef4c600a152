"""Variable-length integers as the record format has them: zigzag, then base 128, least significant first.

Zigzag maps 0, -1, 1, -2 … to 0, 1, 2, 3 …, so small numbers of either sign take one byte. Lengths and offset
deltas are at most 32 bits wide (five bytes), timestamp deltas 64 bits (ten bytes); a longer one is an error.
Same as `org.apache.kafka.common.utils.ByteUtils`.
"""

from __future__ import annotations

from typing import Final

from klamm.records.errors import InvalidRecordError

VARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10

_TABLE_SIZE: Final = 1 << 14


def encode_varint(value: int) -> bytes:
    """One to ten bytes; `value` is at most 64 bits wide, signed."""
    remaining = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while remaining > 0x7F:
        encoded.append(remaining & 0x7F | 0x80)
        remaining >>= 7
    encoded.append(remaining)
    return bytes(encoded)


ENCODED: Final = tuple(encode_varint(value) for value in range(_TABLE_SIZE))
"""`ENCODED[n]` is `encode_varint(n)`: almost every number in a batch is small and not negative."""

DECODED: Final = tuple((raw >> 1) ^ -(raw & 1) for raw in range(_TABLE_SIZE))
"""`DECODED[u]` undoes the zigzag for what one or two bytes can hold."""


def encode_all(values: list[int]) -> list[bytes]:
    """`encode_varint` of each of a non-empty list."""
    if min(values) >= 0 and max(values) < _TABLE_SIZE:
        return [ENCODED[value] for value in values]
    return [encode_varint(value) for value in values]


def size_of_varint(value: int) -> int:
    """How many bytes `encode_varint` makes of `value`."""
    zigzag = (value << 1) ^ (value >> 63)
    return max(1, (zigzag.bit_length() + 6) // 7)


def decode_varint(data: bytes, position: int, bytes_max: int = VARINT_BYTES_MAX) -> tuple[int, int]:
    """The number at `position`, and the position after it.

    Raises InvalidRecordError when it is longer than `bytes_max` bytes or wider than the type that stands for
    (32 bits for five, 64 for ten), IndexError when `data` ends inside it.
    """
    raw = shift = 0
    for length in range(1, bytes_max + 1):
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if length == bytes_max and raw >> (32 if bytes_max == VARINT_BYTES_MAX else 64):
                break
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
    raise InvalidRecordError(
        f"the varint before byte {position} of the records is wider than {bytes_max} bytes hold"
    )
