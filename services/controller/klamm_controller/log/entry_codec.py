"""The format of entries and snapshots in the store.

| key                                         | value                                                     |
|---------------------------------------------|-----------------------------------------------------------|
| `m` name                                    | format version; crc and JSON of all others                |
| `l` index (8 bytes)                         | crc (4), term (8), kind (1), payload                      |
| `s` end index (8), term (8), position (8)   | crc (4), bytes of that snapshot, from that position on    |

Integers are big-endian, so the order of the keys is the order of the log and of a snapshot's bytes. The CRC-32C covers
the key and the value, so it also detects a value under a wrong key.
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
    """Raised if the metadata log has data that was never written. Entries after the damage cannot be trusted either."""


def entry_key(index: int) -> bytes:
    """Returns the key of the entry with this index."""
    return _ENTRY_KEY.pack(ENTRY, index)


def entry_index(key: bytes) -> int:
    """Returns the index in an entry's key. Raises CorruptLogError if the key has a wrong length."""
    if len(key) != _ENTRY_KEY.size:
        raise CorruptLogError(f"{describe_key(key)} is not a log entry")
    index: int = _ENTRY_KEY.unpack(key)[1]
    return index


def snapshot_key(snapshot: SnapshotId, position: int) -> bytes:
    """Returns the key of the part of a snapshot that begins at the byte `position`."""
    return _SNAPSHOT_KEY.pack(SNAPSHOT, snapshot.end_index, snapshot.term, position)


def snapshot_key_end(snapshot: SnapshotId) -> bytes:
    """Returns a key after all keys of the snapshot, as the exclusive end of a range."""
    return snapshot_key(SnapshotId(end_index=snapshot.end_index, term=snapshot.term + 1), 0)


def snapshot_position(key: bytes) -> int:
    """Returns the byte position in the key of a snapshot's part."""
    position: int = _SNAPSHOT_KEY.unpack(key)[3]
    return position


def seal(key: bytes, payload: bytes) -> bytes:
    """Returns the value to write under `key`: the checksum, then the payload."""
    return _CRC.pack(crc32c(payload, crc32c(key))) + payload


def unseal(key: bytes, value: bytes) -> bytes:
    """Returns the payload that was sealed under `key`. Raises CorruptLogError if its checksum is wrong."""
    payload = value[_CRC.size :]
    if len(value) < _CRC.size or _CRC.unpack_from(value)[0] != crc32c(payload, crc32c(key)):
        raise CorruptLogError(f"{describe_key(key)} fails its checksum")
    return payload


def encode_entry(entry: LogEntry) -> tuple[bytes, bytes]:
    """Returns the key and the value of an entry."""
    key = entry_key(entry.index)
    return key, seal(key, _ENTRY_HEAD.pack(entry.term, entry.kind) + entry.payload)


def decode_entry(key: bytes, value: bytes) -> LogEntry:
    """Decodes the entry under `key`. Raises CorruptLogError if it is damaged."""
    index = entry_index(key)
    data = unseal(key, value)
    try:
        term, kind = _ENTRY_HEAD.unpack_from(data)
        return LogEntry(index, term, EntryKind(kind), data[_ENTRY_HEAD.size :])
    except (struct.error, ValueError) as error:
        raise CorruptLogError(f"{describe_key(key)} does not parse: {error}") from error


def encode_meta(key: bytes, fields: dict[str, Any]) -> bytes:
    """Encodes named fields as the value of a metadata key."""
    return seal(key, json.dumps(fields, separators=(",", ":")).encode())


def decode_meta(key: bytes, value: bytes) -> dict[str, Any]:
    """Decodes the named fields under `key`. Raises CorruptLogError if the checksum is wrong."""
    fields = json.loads(unseal(key, value))
    assert isinstance(fields, dict), fields
    return fields


def describe_key(key: bytes) -> str:
    """Describes a key in words, for error messages."""
    if key[:1] == ENTRY and len(key) == _ENTRY_KEY.size:
        return f"the entry at index {_ENTRY_KEY.unpack(key)[1]}"
    if key[:1] == SNAPSHOT and len(key) == _SNAPSHOT_KEY.size:
        _, end_index, _, position = _SNAPSHOT_KEY.unpack(key)
        return f"position {position} of the snapshot of index {end_index}"
    if key[:1] == META:
        return f"the {key[1:].decode(errors='replace')}"
    return f"the key {key.hex()}"
