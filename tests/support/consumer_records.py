"""Records as a consumer returns them, made without a cluster."""

from __future__ import annotations

from klamm import ConsumerRecord
from klamm.records import TimestampType


def consumer_record(
    offset: int,
    *,
    topic: str = "orders",
    partition: int = 0,
    key: bytes | None = None,
    value: bytes | None = b"1",
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> ConsumerRecord[bytes | None, bytes | None]:
    """Returns a record at `offset` with timestamp 0."""
    return ConsumerRecord(topic, partition, offset, 0, key, value, headers, TimestampType.CREATE_TIME, 0)
