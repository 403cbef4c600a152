"""The description of `__consumer_offsets` for the log of a shard of groups."""

from __future__ import annotations

from klamm.model import GROUP_METADATA_TOPIC
from klamm_coordinator.records.schemas import (
    GroupMetadataKey,
    GroupRecord,
    encode_key,
    encode_value,
)
from klamm_coordinator.runtime.shard_topic import ShardTopic


def _encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    return encode_key(record.key), encode_value(record.value)


OFFSETS = ShardTopic(name=GROUP_METADATA_TOPIC, encode=_encode, claim=GroupRecord(GroupMetadataKey(""), None))
