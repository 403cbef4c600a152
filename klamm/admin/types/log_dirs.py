"""Log directories and the replicas in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from klamm.model import TopicPartition


class TopicPartitionReplica(NamedTuple):
    """A partition's replica on one broker."""

    topic: str
    partition: int
    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDescription:
    tp: TopicPartition
    size_bytes: int
    log_start_offset: int
    log_end_offset: int
    is_future: bool
    """True while the replica is copied from another log directory of the broker. It replaces the old replica after that
    (KIP-113)."""
    offset_lag: int
    """The number of offsets by which a future replica is behind."""
    held_bytes: int = 0
    """The bytes that retention keeps only for groups (`retention.hold.groups`), of a replica that leads."""
    held_for: str = ""
    """The group with the lowest committed offset, for which the bytes are held. Empty if no coordinator could tell."""
    in_bytes: int = 0
    """The bytes of record batches that producers have appended to this replica since the broker opened its log."""
    out_bytes: int = 0
    """The bytes of record batches that this replica has sent to consumers since the broker opened its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    path: str
    online: bool
    total_bytes: int
    """The size of the directory's file system."""
    usable_bytes: int
    """The number of bytes that are free in the file system."""
    replicas: tuple[ReplicaDescription, ...]
