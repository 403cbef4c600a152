"""Reads the topics in a consumer's metadata, a ConsumerProtocolSubscription. Every version begins with the fields of
version 0.

    version int16 | topics: int32 count, then strings | user_data bytes | fields of later versions

(Kafka: clients/src/main/resources/common/message/ConsumerProtocolSubscription.json)
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm_coordinator.records.codec import SchemaError, SchemaReader

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Returns the topics that any of these members subscribes to, or None if the metadata of one member does not parse.

    Clients may send any bytes as metadata. The topics that they read are then unknown."""
    topics: set[str] = set()
    try:
        for raw in metadata:
            topics.update(_topics(raw))
    except SchemaError:
        return None
    return frozenset(topics)


def _topics(raw: bytes) -> list[str]:
    reader = SchemaReader(raw)
    version = reader.int16()
    if version < 0:
        raise SchemaError(f"subscription version {version} is not supported")
    return [reader.string() for _ in range(reader.array_size())]
