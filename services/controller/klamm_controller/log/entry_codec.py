"""How entries and snapshots look in the store.

| key                                         | value                                                     |
|---------------------------------------------|-----------------------------------------------------------|
| `m` name                                    | format version; crc and JSON of all others                |
| `l` index (8 bytes)                         | crc (4), term (8), kind (1), payload                      |
| `s` end index (8), term (8), position (8)   | crc (4), bytes of that snapshot, from that position on    |

Integers are big-endian, so the order of the keys is the order of the log and of a snapshot's bytes. The CRC-32C is over
key and value: a value under the key of another is as wrong as a flipped bit.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from klamm.checksum import crc32c
from klamm.errors import KlammError
from klamm_controller.raft.messages import EntryKind, LogEntry, SnapshotId

META = b"m"
ENTRY = b"l"
ENTRY_END = b"m"
SNAPSHOT = b"s"
SNAPSHOT_END = b"t"

_ENTRY_KEY = struct.Struct(">cQ")
_SNAPSHOT_KEY = struct.Struct(">cQQQ")
_ENTRY_HEAD = struct.Struct(">QB")
_CRC = struct.Struct(">I")


class CorruptLogError(KlammError):
    """The metadata log holds something that was never written; nothing after it can be believed."""


def entry_key(index: int) -> bytes:
    """Where the entry with that index is."""
    return _ENTRY_KEY.pack(ENTRY, index)


def entry_index(key: bytes) -> int:
    """The index in an entry's key. Raises CorruptLogError."""
    if len(key) != _ENTRY_KEY.size:
        raise CorruptLogError(f"{describe_key(key)} is not a log entry")
    index: int = _ENTRY_KEY.unpack(key)[1]
    return index


def snapshot_key(snapshot: SnapshotId, position: int) -> bytes:
    """Where the bytes of a snapshot are that begin at `position`."""
    return _SNAPSHOT_KEY.pack(SNAPSHOT, snapshot.end_index, snapshot.term, position)


def snapshot_key_end(snapshot: SnapshotId) -> bytes:
    """A key that comes after all keys of that snapshot."""
    return snapshot_key(SnapshotId(end_index=snapshot.end_index, term=snapshot.term + 1), 0)


def snapshot_position(key: bytes) -> int:
    """The position in a snapshot's key."""
    position: int = _SNAPSHOT_KEY.unpack(key)[3]
    return position


def seal(key: bytes, payload: bytes) -> bytes:
    """The value to write under `key`."""
    return _CRC.pack(crc32c(payload, crc32c(key))) + payload


def unseal(key: bytes, value: bytes) -> bytes:
    """Returns the payload that was sealed under `key`. Raises CorruptLogError if its checksum is wrong."""
    payload = value[_CRC.size :]
    if len(value) < _CRC.size or _CRC.unpack_from(value)[0] != crc32c(payload, crc32c(key)):
        raise CorruptLogError(f"{describe_key(key)} fails its checksum")
    return payload


def encode_entry(entry: LogEntry) -> tuple[bytes, bytes]:
    """Key and value of an entry."""
    key = entry_key(entry.index)
    return key, seal(key, _ENTRY_HEAD.pack(entry.term, entry.kind) + entry.payload)


def decode_entry(key: bytes, value: bytes) -> LogEntry:
    """The entry under `key`. Raises CorruptLogError."""
    index = entry_index(key)
    data = unseal(key, value)
    try:
        term, kind = _ENTRY_HEAD.unpack_from(data)
        return LogEntry(index, term, EntryKind(kind), data[_ENTRY_HEAD.size :])
    except (struct.error, ValueError) as error:
        raise CorruptLogError(f"{describe_key(key)} does not parse: {error}") from error


def encode_meta(key: bytes, fields: dict[str, Any]) -> bytes:
    """A value with named fields."""
    return seal(key, json.dumps(fields, separators=(",", ":")).encode())


def decode_meta(key: bytes, value: bytes) -> dict[str, Any]:
    """The fields under `key`. Raises CorruptLogError."""
    fields = json.loads(unseal(key, value))
    assert isinstance(fields, dict), fields
    return fields


def describe_key(key: bytes) -> str:
    """A key for people."""
    if key[:1] == ENTRY and len(key) == _ENTRY_KEY.size:
        return f"the entry at index {_ENTRY_KEY.unpack(key)[1]}"
    if key[:1] == SNAPSHOT and len(key) == _SNAPSHOT_KEY.size:
        _, end_index, _, position = _SNAPSHOT_KEY.unpack(key)
        return f"position {position} of the snapshot of index {end_index}"
    if key[:1] == META:
        return f"the {key[1:].decode(errors='replace')}"
    return f"the key {key.hex()}"
