"""The two messages that carry record batches, read and written by hand.

`ProduceRequest` and `FetchResponse` (proto/klamm/v1/broker.proto) are `{header = 1; records = 2}`. A protobuf
parser would copy the records twice. This module parses only the header, and the records stay a view of the bytes that
gRPC received. It writes the same bytes as protobuf, so that the peer may use generated code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from klamm.errors import EXCEPTIONS, ErrorCode

Buffer = bytes | bytearray | memoryview
HeaderT = TypeVar("HeaderT", bound=Message)

_HEADER_TAG = 0x0A  # field 1, length-delimited
_RECORDS_TAG = 0x12  # field 2, length-delimited
_VARINT_BYTES_MAX = 5

_InvalidRequestError = EXCEPTIONS[ErrorCode.INVALID_REQUEST]


def encode_framed(header: Message, records: Sequence[Buffer]) -> bytes:
    """Returns one message of `header` and the concatenated `records`. The records are copied only once."""
    return b"".join((framed_start(header, sum(map(len, records))), *records))


def framed_start(header: Message, records_bytes: int) -> bytes:
    """Returns what precedes `records_bytes` bytes of records in their message with `header`."""
    head = header.SerializeToString()
    prefix = b"\x0a" + _encode_varint(len(head)) + head
    if not records_bytes:
        return prefix
    return prefix + b"\x12" + _encode_varint(records_bytes)


def decode_framed(message: Buffer, header_class: type[HeaderT]) -> tuple[HeaderT, memoryview]:
    """Returns the parsed header and a view of the records, which is empty if the message has none.

    Raises InvalidRequestError unless the message consists of the two fields in order."""
    header, position = _read_field(message, 0, _HEADER_TAG, header_class.__name__)
    try:
        parsed = header_class.FromString(header.tobytes())
    except DecodeError as error:
        raise _InvalidRequestError(f"{header_class.__name__} does not parse: {error}") from error
    if position == len(message):
        return parsed, memoryview(b"")
    records, position = _read_field(message, position, _RECORDS_TAG, "records")
    if position != len(message):
        raise _InvalidRequestError(f"{len(message) - position} bytes follow the records; they must be last")
    return parsed, records


def split_records(records: memoryview, sizes_bytes: Iterable[int]) -> list[memoryview]:
    """Splits `records` into the parts of the partitions. Raises InvalidRequestError if the sizes do not add up."""
    parts = []
    position = 0
    for size_bytes in sizes_bytes:
        parts.append(records[position : position + size_bytes])
        position += size_bytes
    if position != len(records):
        raise _InvalidRequestError(f"the header speaks of {position} bytes of records, {len(records)} came")
    return parts


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_field(message: Buffer, position: int, tag: int, name: str) -> tuple[memoryview, int]:
    if position >= len(message) or message[position] != tag:
        raise _InvalidRequestError(f"expected {name} (tag {tag:#x}) at byte {position} of {len(message)}")
    position += 1
    size_bytes = shift = 0
    for byte in message[position : position + _VARINT_BYTES_MAX]:
        position += 1
        size_bytes |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    else:
        raise _InvalidRequestError(f"the length of {name} does not end")
    end = position + size_bytes
    if end > len(message):
        raise _InvalidRequestError(f"{name} is {size_bytes} bytes long, {len(message) - position} are left")
    return memoryview(message)[position:end], end
