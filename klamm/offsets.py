"""Positions in a partition as the Consumer and the Admin exchange them with their user and with brokers.

Follows `org.apache.kafka.clients.consumer.OffsetAndMetadata` and `OffsetAndTimestamp`.
"""

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
    """The committer's own note; `offset.metadata.max.bytes` bounds it."""
    leader_epoch: int = NO_LEADER_EPOCH
    """Leader epoch of the last record consumed, or -1."""


class OffsetAndTimestamp(NamedTuple):
    """The first record that is not older than the time asked for."""

    offset: int
    timestamp: int
    """Milliseconds since the epoch."""
    leader_epoch: int = NO_LEADER_EPOCH


class EpochEnd(NamedTuple):
    """Where a leader epoch ends in a leader's log (KIP-320)."""

    leader_epoch: int
    """The greatest of its log that is not above the one asked for; -1: none."""
    end_offset: int
    """One past the last offset of that epoch; -1: unknown."""
    current_leader_epoch: int
    """Under which it leads."""

    @property
    def is_known(self) -> bool:
        return self.leader_epoch >= 0 and self.end_offset >= 0


class ConsumerGroupMetadata(NamedTuple):
    """The group member that read the records of a transaction (KIP-447); `Consumer.group_metadata` gives it.

    Follows `org.apache.kafka.clients.consumer.ConsumerGroupMetadata`."""

    group_id: str
    generation_id: int = -1
    """-1: nobody, the group only stores offsets."""
    member_id: str = ""
    group_instance_id: str | None = None


def to_commit(offsets: Mapping[TopicPartition, OffsetAndMetadata | int]) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a caller gives to be committed, in full. Raises ConfigError for a negative offset: a coordinator stores
    it, and it says that nothing is committed."""
    wanted = {
        TopicPartition(*tp): OffsetAndMetadata(each) if isinstance(each, int) else each for tp, each in offsets.items()
    }
    for tp, each in wanted.items():
        if each.offset < 0:
            raise ConfigError(f"offset {each.offset} of {tp}: expected 0 or more")
    return wanted
