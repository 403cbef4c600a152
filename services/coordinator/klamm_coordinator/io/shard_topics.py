"""The two internal topics as the log of a shard sees them: a name, an encoding, and a record that claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from klamm.model import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from klamm_coordinator.records.schemas import GroupMetadataKey, Record, encode_key, encode_value
from klamm_coordinator.transaction.records import TransactionRecord, encode_transaction_record


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTopic:
    """What `LogLink` has to know of a topic whose partitions are shards."""

    name: str
    encode: Callable[[Any], tuple[bytes, bytes | None]]
    """Key and value of a record of its core's writes."""
    claim: Any
    """A tombstone of what cannot exist: every reader of the topic knows such a record and does nothing about it."""


def _encode_group_record(record: Record) -> tuple[bytes, bytes | None]:
    return encode_key(record.key), encode_value(record.value)


OFFSETS = ShardTopic(name=GROUP_METADATA_TOPIC, encode=_encode_group_record, claim=Record(GroupMetadataKey(""), None))
TRANSACTIONS = ShardTopic(
    name=TRANSACTION_STATE_TOPIC, encode=encode_transaction_record, claim=TransactionRecord("", None)
)
