"""The keys and values of `__transaction_state`, byte for byte as Kafka writes and reads them.

    key 0     TransactionLogKey     transactional_id string

    TransactionLogValue                     0 1
    producer_id int64                       x x
    producer_epoch int16                    x x
    transaction_timeout_ms int32            x x
    transaction_status int8                 x x
    transaction_partitions []?              x x     null in state Empty
        topic string, partition_ids []int32 x x
    last_update_timestamp_ms int64          x x
    start_timestamp_ms int64                x x
    tag 0  previous_producer_id int64         x
    tag 1  next_producer_id int64             x
    tag 2  client_transaction_version int16   x
    tag 10000  last_producer_epoch int16      x     Klamm's own; Kafka's readers skip them
    tag 10001  prepared_ms int64              x
    (1 is the flexible encoding)

Kafka keeps the last producer epoch in memory only, so that an InitProducerId that is repeated after a failover looks
like a zombie's. The coordinator reads every version and writes version 1. A null value (tombstone) deletes the key.

Keys of version 10000 belong to batch ledgers (`ledger/records.py`). Kafka's readers skip these records. (Kafka:
transaction-coordinator/src/main/resources/common/message/TransactionLog{Key,Value}.json)
"""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import Final, NamedTuple

from klamm.kafka_types.writer import KafkaWriter
from klamm.model import NO_PRODUCER_ID, TopicPartition
from klamm_coordinator.records.codec import SchemaError, SchemaReader
from klamm_coordinator.transaction.metadata import NO_EPOCH, NO_TIMESTAMP, WITHOUT_BUMP, TransactionMetadata
from klamm_coordinator.transaction.states import STATES, TxnState

TRANSACTION_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 1

_PREVIOUS_PRODUCER_ID: Final = 0
_NEXT_PRODUCER_ID: Final = 1
_CLIENT_TRANSACTION_VERSION: Final = 2
_LAST_PRODUCER_EPOCH: Final = 10_000
_PREPARED_MS: Final = 10_001
_TAG_LAYOUTS: Final = {
    _PREVIOUS_PRODUCER_ID: (struct.Struct(">q"), NO_PRODUCER_ID),
    _NEXT_PRODUCER_ID: (struct.Struct(">q"), NO_PRODUCER_ID),
    _CLIENT_TRANSACTION_VERSION: (struct.Struct(">h"), WITHOUT_BUMP),
    _LAST_PRODUCER_EPOCH: (struct.Struct(">h"), NO_EPOCH),
    _PREPARED_MS: (struct.Struct(">q"), NO_TIMESTAMP),
}
"""The layout and default value of each tagged field. A field that has its default value is not written."""


class TransactionRecord(NamedTuple):
    """A change of a transactional id's state. The value None deletes the id."""

    transactional_id: str
    value: TransactionMetadata | None


def encode_transaction_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Returns the record's key and value as bytes."""
    key = KafkaWriter().int16(TRANSACTION_KEY_VERSION).string(record.transactional_id).value()
    return key, None if record.value is None else _encode_value(record.value)


def decode_transaction_record(key: bytes, value: bytes | None) -> TransactionRecord:
    """Decodes a transaction's record, whose key has TRANSACTION_KEY_VERSION. Raises SchemaError."""
    reader = SchemaReader(key)
    reader.int16()
    return TransactionRecord(reader.string(), None if value is None else _decode_value(value))


def _encode_value(value: TransactionMetadata) -> bytes:
    writer = KafkaWriter().int16(_VALUE_VERSION).use_flexible()
    writer.int64(value.producer_id).int16(value.producer_epoch)
    writer.int32(value.timeout_ms).int8(value.state)
    if value.state is TxnState.EMPTY:
        writer.null_array()
    else:
        _write_partitions(writer, value.partitions)
    writer.int64(value.last_update_ms).int64(value.start_ms)
    tagged = {
        _PREVIOUS_PRODUCER_ID: value.previous_producer_id,
        _NEXT_PRODUCER_ID: value.next_producer_id,
        _CLIENT_TRANSACTION_VERSION: value.transaction_version,
        _LAST_PRODUCER_EPOCH: value.last_producer_epoch,
        _PREPARED_MS: value.prepared_ms,
    }
    return writer.tagged_fields(
        sorted(
            (tag, _TAG_LAYOUTS[tag][0].pack(field)) for tag, field in tagged.items() if field != _TAG_LAYOUTS[tag][1]
        )
    ).value()


def _write_partitions(writer: KafkaWriter, partitions: frozenset[TopicPartition]) -> None:
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        by_topic[topic].append(partition)
    writer.array_size(len(by_topic))
    for topic, numbers in by_topic.items():
        writer.string(topic).array_size(len(numbers))
        for number in numbers:
            writer.int32(number)
        writer.tagged_fields()


def _decode_value(data: bytes) -> TransactionMetadata:
    reader = SchemaReader(data)
    version = reader.int16()
    if not 0 <= version <= _VALUE_VERSION:
        raise SchemaError(f"TransactionLogValue version {version} is unknown; expected 0 to {_VALUE_VERSION}")
    if version == _VALUE_VERSION:
        reader.use_flexible()
    producer_id, producer_epoch, timeout_ms = reader.int64(), reader.int16(), reader.int32()
    state = _state(reader.int8())
    partitions = frozenset(_read_partitions(reader))
    last_update_ms, start_ms = reader.int64(), reader.int64()
    tagged = reader.tagged_fields()
    return TransactionMetadata(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        last_producer_epoch=_tagged(tagged, _LAST_PRODUCER_EPOCH),
        previous_producer_id=_tagged(tagged, _PREVIOUS_PRODUCER_ID),
        next_producer_id=_tagged(tagged, _NEXT_PRODUCER_ID),
        timeout_ms=timeout_ms,
        state=state,
        partitions=partitions,
        start_ms=start_ms,
        last_update_ms=last_update_ms,
        transaction_version=_tagged(tagged, _CLIENT_TRANSACTION_VERSION),
        prepared_ms=_tagged(tagged, _PREPARED_MS),
    )


def _state(number: int) -> TxnState:
    try:
        return STATES[number]
    except KeyError as error:
        raise SchemaError(f"transaction status {number} is unknown; expected 0 to {max(TxnState)}") from error


def _read_partitions(reader: SchemaReader) -> list[TopicPartition]:
    partitions = []
    for _ in range(reader.nullable_array_size()):
        topic = reader.string()
        partitions += [TopicPartition(topic, reader.int32()) for _ in range(reader.array_size())]
        reader.skip_tagged_fields()
    return partitions


def _tagged(fields: dict[int, bytes], tag: int) -> int:
    layout, default = _TAG_LAYOUTS[tag]
    if tag not in fields:
        return default
    if len(fields[tag]) != layout.size:
        raise SchemaError(f"tagged field {tag} has {len(fields[tag])} bytes, expected {layout.size}")
    (value,) = layout.unpack(fields[tag])
    return int(value)
