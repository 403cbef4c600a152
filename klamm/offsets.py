"""The values for offsets and positions in the APIs of the Consumer and the Admin.

Follows `org.apache.kafka.clients.consumer.OffsetAndMetadata` and `OffsetAndTimestamp`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from klamm.errors import ConfigError
from klamm.model import NO_LEADER_EPOCH, TopicPartition


class OffsetAndMetadata(NamedTuple):
    """A committed offset of a partition, with its metadata."""

    offset: int
    """The next offset to read."""
    metadata: str = ""
    """A note of the consumer that committed. `offset.metadata.max.bytes` limits its size."""
    leader_epoch: int = NO_LEADER_EPOCH
    """The leader epoch of the last consumed record, or -1."""


class OffsetAndTimestamp(NamedTuple):
    """The offset and timestamp of the first record that is not older than the requested time."""

    offset: int
    timestamp: int
    """Milliseconds since the epoch."""
    leader_epoch: int = NO_LEADER_EPOCH


class EpochEnd(NamedTuple):
    """The end of a leader epoch in a leader's log (KIP-320)."""

    leader_epoch: int
    """The greatest epoch of the leader's log that is not above the requested one, or -1 if there is none."""
    end_offset: int
    """The offset after the last record of that epoch, or -1 if it is unknown."""
    current_leader_epoch: int
    """The leader's own epoch."""

    @property
    def is_known(self) -> bool:
        return self.leader_epoch >= 0 and self.end_offset >= 0


class ConsumerGroupMetadata(NamedTuple):
    """The group member that read the records of a transaction (KIP-447); `Consumer.group_metadata` gives it.

    Follows `org.apache.kafka.clients.consumer.ConsumerGroupMetadata`."""

    group_id: str
    generation_id: int = -1
    """The member's generation, or -1 if the group only stores offsets."""
    member_id: str = ""
    group_instance_id: str | None = None


def to_commit(offsets: Mapping[TopicPartition, OffsetAndMetadata | int]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns the offsets to commit as OffsetAndMetadata. Raises ConfigError for a negative offset. A coordinator would
    store it, and it would mean that nothing is committed."""
    wanted = {
        TopicPartition(*tp): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        for tp, offset in offsets.items()
    }
    for tp, entry in wanted.items():
        if entry.offset < 0:
            raise ConfigError(f"offset {entry.offset} of {tp}: expected 0 or more")
    return wanted
