"""How entries and snapshots look in the store.

| key                              | value                                              |
|----------------------------------|----------------------------------------------------|
| `m` name                         | text: format version, hard state (term, vote)      |
| `l` index (8 bytes)              | crc (4 bytes), MetadataBatch with that base index  |
| `s` end index (8), chunk (4)     | crc (4 bytes), MetadataBatch, a part of a snapshot |

Integers are big-endian, so the order of the keys is the order of the log. The CRC-32C is over key and batch: a
value under the key of another is as wrong as a flipped bit. The first and last chunk of a snapshot carry the marks
of the wire (snapshot_begin, snapshot_end), which show that it is whole.
"""

from __future__ import annotations

import struct

import crc32c
from google.protobuf.message import DecodeError

from klamm.errors import KlammError
from klamm.wire.v1.metadata_pb2 import MetadataBatch

META = b"m"
ENTRY = b"l"
ENTRY_END = b"m"
SNAPSHOT = b"s"
SNAPSHOT_END = b"t"

_ENTRY_KEY = struct.Struct(">cQ")
_SNAPSHOT_KEY = struct.Struct(">cQI")
_CRC = struct.Struct(">I")


class CorruptLogError(KlammError):
    """The metadata log holds something that was never written; nothing after it can be believed."""


def entry_key(base_index: int) -> bytes:
    """Where the entry with that base index is."""
    return _ENTRY_KEY.pack(ENTRY, base_index)


def snapshot_key(end_index: int, chunk: int) -> bytes:
    """Where a chunk of the snapshot of everything below `end_index` is."""
    return _SNAPSHOT_KEY.pack(SNAPSHOT, end_index, chunk)


def encode(key: bytes, batch: MetadataBatch) -> bytes:
    """The value to write under `key`."""
    payload = batch.SerializeToString()
    return _CRC.pack(crc32c.crc32c(payload, crc32c.crc32c(key))) + payload


def decode(key: bytes, value: bytes) -> MetadataBatch:
    """The batch under `key`. Raises CorruptLogError unless it is what was written there."""
    payload = value[_CRC.size :]
    if len(value) < _CRC.size or _CRC.unpack_from(value)[0] != crc32c.crc32c(payload, crc32c.crc32c(key)):
        raise CorruptLogError(f"{describe_key(key)} fails its checksum")
    try:
        return MetadataBatch.FromString(payload)
    except DecodeError as error:
        raise CorruptLogError(f"{describe_key(key)} does not parse: {error}") from error


def describe_key(key: bytes) -> str:
    """A key for people."""
    if key[:1] == ENTRY and len(key) == _ENTRY_KEY.size:
        return f"the entry at index {_ENTRY_KEY.unpack(key)[1]}"
    if key[:1] == SNAPSHOT and len(key) == _SNAPSHOT_KEY.size:
        _, end_index, chunk = _SNAPSHOT_KEY.unpack(key)
        return f"chunk {chunk} of the snapshot of index {end_index}"
    return f"the key {key.hex()}"
