"""The values that all parts share: ids, topic-partitions, legal names.

Ends are exclusive everywhere (`end_offset` is one past the last); times are milliseconds since the epoch
unless a name says otherwise."""

from __future__ import annotations

import re
import struct
import uuid
from typing import NamedTuple, NewType

from klamm.ledger_ids import ledger_of

BrokerId = NewType("BrokerId", int)
CoordinatorId = NewType("CoordinatorId", int)
TopicId = NewType("TopicId", uuid.UUID)
Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)
GenerationId = NewType("GenerationId", int)

EARLIEST_TIMESTAMP = -2
"""ListOffsets: the first offset still there (Kafka's ListOffsetsRequest.EARLIEST_TIMESTAMP)."""
LATEST_TIMESTAMP = -1
"""ListOffsets: the high watermark."""
MAX_TIMESTAMP = -3
"""ListOffsets: the offset of the record with the largest timestamp (KIP-734)."""
EARLIEST_LOCAL_TIMESTAMP = -4
"""ListOffsets: the first offset that is not only in tiered storage (KIP-405)."""
LATEST_TIERED_TIMESTAMP = -5
"""ListOffsets: the last offset in tiered storage (KIP-1005)."""
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6
"""ListOffsets: the first offset that is not in tiered storage yet (KIP-1023)."""

NO_PRODUCER_ID = -1
NO_LEADER_EPOCH = -1

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARD_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC})
"""The topics whose partitions are shards that coordinators own."""
AUDIT_TOPIC = "__klamm_audit"
"""The topic to which servers write the audit."""
INTERNAL_TOPICS = SHARD_TOPICS | {AUDIT_TOPIC}
"""The topics to which only servers write."""
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""Kafka's name for the controllers' log, which has one partition. No topic has this name."""

TOPIC_NAME_LENGTH_MAX = 249
_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]+\Z")


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Returns for example `orders-3`, which is also the name of the partition's directory in a log directory."""
        return f"{self.topic}-{self.partition}"


def topic_name_problem(name: str) -> str | None:
    """Returns why `name` is not a legal topic name, or None (Kafka's `Topic.validate`)."""
    if not name:
        return "the topic name is empty"
    if name in (".", ".."):
        return f"the topic name {name!r} is reserved"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"the topic name has {len(name)} characters; at most {TOPIC_NAME_LENGTH_MAX} are allowed"
    if not _LEGAL_TOPIC.match(name):
        return f"the topic name {name!r} has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None


def topic_collision_key(name: str) -> str:
    """Returns a key that is equal for names whose metric names collide, because they differ only in '.' and '_'
    (Kafka's `Topic.unifyCollisionChars`)."""
    return name.replace(".", "_")


def java_string_hash(text: str) -> int:
    """Returns Java's `String.hashCode()`: signed 32 bits over UTF-16 code units."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", encoded):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def coordinator_shard(key: str, shard_count: int) -> int:
    """Returns the partition of an internal topic that owns a group id or transactional id.

    It is Kafka's `Utils.abs(key.hashCode) % count`, whose abs maps `Integer.MIN_VALUE` to 0. All ids of a batch ledger
    (`klamm.ledger_ids`) are in one shard."""
    ledger = ledger_of(key)
    value = java_string_hash(key if ledger is None else ledger.key)
    magnitude = 0 if value == -(1 << 31) else abs(value)
    return magnitude % shard_count
