"""The two kinds of records of `__transaction_state`. The version of the key says which kind a record is."""

from __future__ import annotations

from klamm_coordinator.ledger.records import (
    LEDGER_KEY_VERSION,
    LedgerRecord,
    decode_ledger_record,
    encode_ledger_record,
)
from klamm_coordinator.records.codec import SchemaReader
from klamm_coordinator.transaction.records import (
    TRANSACTION_KEY_VERSION,
    TransactionRecord,
    decode_transaction_record,
    encode_transaction_record,
)

ShardRecord = TransactionRecord | LedgerRecord


def encode_shard_record(record: ShardRecord) -> tuple[bytes, bytes | None]:
    """Returns the record's key and value as bytes."""
    return encode_ledger_record(record) if isinstance(record, LedgerRecord) else encode_transaction_record(record)


def decode_shard_record(key: bytes, value: bytes | None) -> ShardRecord | None:
    """Returns the record, or None if this coordinator does not know the kind of its key (Kafka skips such records too).

    Raises SchemaError."""
    match SchemaReader(key).int16():
        case version if version == TRANSACTION_KEY_VERSION:
            return decode_transaction_record(key, value)
        case version if version == LEDGER_KEY_VERSION:
            return decode_ledger_record(key, value)
        case _:
            return None
