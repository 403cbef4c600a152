"""Decodes the records of the internal topics. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from klamm.consumer.assignors.consumer_protocol import ConsumerProtocolError, decode_assignment, decode_subscription
from klamm_cli.log_dump.plain import plain
from klamm_coordinator.classic.subscription import CONSUMER_PROTOCOL_TYPE
from klamm_coordinator.ledger.records import LedgerRecord
from klamm_coordinator.records.codec import SchemaError
from klamm_coordinator.records.schemas import GroupMetadataValue, decode_key, decode_value
from klamm_coordinator.transaction_shard.records import decode_shard_record


def raw(key: bytes | None, value: bytes | None) -> tuple[object, object]:
    """Returns the key and the value unchanged."""
    return key, value


def decode_offsets(key: bytes | None, value: bytes | None) -> tuple[object, object]:
    """Decodes the key and the value of a record of `__consumer_offsets`. Raises SchemaError."""
    if key is None:
        raise SchemaError("the record has no key")
    decoded = decode_key(key)
    if decoded is None:
        return _unknown(key), value
    shown = _named(decoded)
    if value is None:
        return shown, None
    decoded_value = decode_value(decoded, value)
    return shown, _group(decoded_value) if isinstance(decoded_value, GroupMetadataValue) else plain(decoded_value)


def decode_transactions(key: bytes | None, value: bytes | None) -> tuple[object, object]:
    """Decodes the key and the value of a record of `__transaction_state`. Raises SchemaError."""
    if key is None:
        raise SchemaError("the record has no key")
    decoded = decode_shard_record(key, value)
    if decoded is None:
        return _unknown(key), value
    if isinstance(decoded, LedgerRecord):
        return {"type": "BatchLedger", **plain(decoded.ledger)}, plain(decoded.value)
    return {"type": "TransactionLog", "transactional_id": decoded.transactional_id}, plain(decoded.value)


def _named(key: object) -> Mapping[str, object]:
    return {"type": type(key).__name__.removesuffix("Key"), **plain(key)}


def _unknown(key: bytes) -> Mapping[str, object]:
    return {"type": "unknown", "version": int.from_bytes(key[:2], "big"), "key": key.hex()}


def _group(value: GroupMetadataValue) -> object:
    shown = plain(value)
    for member, stored in zip(shown["members"], value.members, strict=True):
        is_consumer = value.protocol_type == CONSUMER_PROTOCOL_TYPE
        member["subscription"] = _parsed(decode_subscription, stored.subscription, is_consumer)
        member["assignment"] = _parsed(decode_assignment, stored.assignment, is_consumer)
    return shown


def _parsed(decode: Callable[[bytes], object], data: bytes, has_schema: bool) -> object:
    """Returns the decoded data, or hexadecimal digits. Members may send any bytes in these fields."""
    try:
        return plain(decode(data)) if has_schema else data.hex()
    except ConsumerProtocolError:
        return data.hex()
