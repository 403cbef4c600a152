"""The records of batch ledgers in `__transaction_state`.

Kafka does not have them. Its readers skip a key of a version that they do not know (TransactionStateManager).

    key 10000   sink string, query_id string

    value 0     run_id string, fenced_run_ids []string, committed_batch_id int64, aborted_batch_id int64,
                last_update_ms int64; in the flexible encoding

A null value (tombstone) deletes the ledger.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klamm.kafka_types.writer import KafkaWriter
from klamm.ledger_ids import LedgerId
from klamm_coordinator.ledger.ledger import BatchLedger
from klamm_coordinator.records.codec import SchemaError, SchemaReader

LEDGER_KEY_VERSION: Final = 10_000
_VALUE_VERSION: Final = 0


class LedgerRecord(NamedTuple):
    """A change of a ledger. The value None deletes the ledger."""

    ledger: LedgerId
    value: BatchLedger | None


def encode_ledger_record(record: LedgerRecord) -> tuple[bytes, bytes | None]:
    """Returns the record's key and value as bytes."""
    key = KafkaWriter().int16(LEDGER_KEY_VERSION).string(record.ledger.sink).string(record.ledger.query_id).value()
    value = record.value
    if value is None:
        return key, None
    writer = KafkaWriter().int16(_VALUE_VERSION).use_flexible()
    writer.string(value.run_id).array_size(len(value.fenced_run_ids))
    for run_id in value.fenced_run_ids:
        writer.string(run_id)
    writer.int64(value.committed_batch_id).int64(value.aborted_batch_id).int64(value.last_update_ms)
    return key, writer.tagged_fields().value()


def decode_ledger_record(key: bytes, value: bytes | None) -> LedgerRecord:
    """Decodes a ledger's record, whose key has the version of ledgers. Raises SchemaError."""
    reader = SchemaReader(key)
    reader.int16()
    ledger = LedgerId(reader.string(), reader.string())
    return LedgerRecord(ledger, None if value is None else _decode_value(value))


def _decode_value(data: bytes) -> BatchLedger:
    reader = SchemaReader(data)
    version = reader.int16()
    if version != _VALUE_VERSION:
        raise SchemaError(f"batch ledger version {version} is unknown; expected {_VALUE_VERSION}")
    reader.use_flexible()
    value = BatchLedger(
        run_id=reader.string(),
        fenced_run_ids=tuple(reader.string() for _ in range(reader.array_size())),
        committed_batch_id=reader.int64(),
        aborted_batch_id=reader.int64(),
        last_update_ms=reader.int64(),
    )
    reader.skip_tagged_fields()
    return value
