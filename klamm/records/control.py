"""Control records: the markers with which a transaction coordinator ends a transaction in the log.

    key   => version int16 = 0 | type int16 (0 abort, 1 commit)
    value => version int16 = 0 | coordinator_epoch int32

A marker is a batch with one such record, and with the transactional and control bits set. Readers ignore fields that
later versions append, and skip unknown types (`ControlRecordType`, `EndTransactionMarker`)."""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Final

from klamm.model import NO_LEADER_EPOCH
from klamm.records.encoder import encode_batch
from klamm.records.errors import InvalidRecordError

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0


class ControlRecordType(enum.IntEnum):
    """The type of a control record: abort or commit. UNKNOWN is any other type, such as those of Kafka's Raft log.
    Readers skip it."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRecord:
    """A decoded marker. `coordinator_epoch` is -1 for a type that is UNKNOWN."""

    type: ControlRecordType
    coordinator_epoch: int


def encode_control_record(control_type: ControlRecordType, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """Returns key and value of the marker."""
    return _KEY.pack(_VERSION, control_type), _VALUE.pack(_VERSION, coordinator_epoch)


def decode_control_record(key: bytes | None, value: bytes | None) -> ControlRecord:
    """Returns the marker of a record of a control batch. Raises InvalidRecordError."""
    if key is None or len(key) < _KEY.size:
        raise InvalidRecordError(f"control record key {key!r}; expected at least {_KEY.size} bytes")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecordError(f"control record key has version {version}; expected 0 or more")
    if number not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        return ControlRecord(type=ControlRecordType.UNKNOWN, coordinator_epoch=-1)
    if value is None or len(value) < _VALUE.size:
        raise InvalidRecordError(f"end transaction marker {value!r}; expected at least {_VALUE.size} bytes")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < 0:
        raise InvalidRecordError(f"end transaction marker has version {version}; expected 0 or more")
    return ControlRecord(type=ControlRecordType(number), coordinator_epoch=coordinator_epoch)


def end_transaction_marker(
    control_type: ControlRecordType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Returns the batch that ends the open transaction of `producer_id` in one partition."""
    key, value = encode_control_record(control_type, coordinator_epoch)
    return encode_batch(
        [(timestamp_ms, key, value, ())],
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
