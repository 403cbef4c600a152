"""The requests of clients about offsets, and the answers.

Like a group's request, each carries a `reply_id` and gets exactly one answer with that id.
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_coordinator.runtime.log_write import TxnMarker, TxnProducer

NO_OFFSET = -1
"""Nothing is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffset:
    """One offset to store."""

    partition: TopicPartition
    offset: int
    """The next offset to read."""
    leader_epoch: int
    """The leader epoch of the last record consumed, or -1."""
    metadata: str
    error: ErrorCode = ErrorCode.NONE
    """Set by the edge when it cannot be stored (the topic is unknown): answered as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """Stores offsets of a group."""

    reply_id: int
    group_id: str
    generation_id: int
    """-1 from outside the group."""
    member_id: str
    instance_id: str | None
    offsets: tuple[CommitOffset, ...]
    producer: TxnProducer | None = None
    """The producer whose transaction this is part of (KIP-447): then the offsets count when it commits."""
    verification: int | None = None
    """What `Shard.begin_verification` gave before the transaction's coordinator was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReply:
    """One code per offset, in order."""

    errors: tuple[ErrorCode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """The marker of a transaction: its offsets count from now on, or never will."""

    reply_id: int
    producer: TxnProducer
    marker: TxnMarker


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionReply:
    """NONE: all in-sync replicas have the marker."""

    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedOffset:
    """A stored offset, or `NO_OFFSET`."""

    partition: TopicPartition
    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets:
    """Forgets offsets of a group (KIP-496)."""

    reply_id: int
    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsetsReply:
    """One code per partition, in order, unless the whole request failed."""

    error: ErrorCode = ErrorCode.NONE
    errors: tuple[ErrorCode, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroups:
    """Deletes groups without members, with their offsets; all belong to the shard that is asked."""

    reply_id: int
    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsReply:
    """One code per group, in order."""

    errors: tuple[ErrorCode, ...]
