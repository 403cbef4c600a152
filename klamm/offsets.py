"""Positions in a partition as the Consumer and the Admin exchange them with their user.

Follows `org.apache.kafka.clients.consumer.OffsetAndMetadata` and `OffsetAndTimestamp`.
"""

from __future__ import annotations

from typing import NamedTuple

from klamm.model import NO_LEADER_EPOCH


class OffsetAndMetadata(NamedTuple):
    """What is committed for a partition."""

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
