"""The requests of clients about offsets, and the answers.

Each request carries a `reply_id` and gets exactly one answer with that id.
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_coordinator.runtime.log_write import TxnMarker, TxnProducer

NO_OFFSET = -1
"""The offset in an answer if no offset is stored."""


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
    """The error that the RPC layer found, such as an unknown topic. The offset is then not stored, and gets this
    error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """A request to store offsets of a group."""

    reply_id: int
    group_id: str
    generation_id: int
    """The member's generation or member epoch, or -1 if the client is not a member."""
    member_id: str
    instance_id: str | None
    offsets: tuple[CommitOffset, ...]
    producer: TxnProducer | None = None
    """The producer whose transaction includes this commit (KIP-447). Its offsets are valid once the transaction
    commits."""
    user: str = ""
    """The user for whom the memory of the group counts, if the request creates it."""
    verification: int | None = None
    """The number of the verification that began before the transaction's coordinator was asked, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReply:
    """CommitOffsets' answer: one error code per offset, in order."""

    errors: tuple[ErrorCode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """The marker that ends a transaction: it commits or aborts the transaction's offsets."""

    reply_id: int
    producer: TxnProducer
    marker: TxnMarker


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionReply:
    """EndTransaction's answer. NONE means that all in-sync replicas have the marker."""

    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedOffset:
    """The stored offset of a partition, or `NO_OFFSET` if none is stored."""

    partition: TopicPartition
    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str = ""
    is_new: bool = False
    """True if none is stored and the group begins with the first record, because the partition is younger than it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets:
    """A request to delete offsets of a group (KIP-496)."""

    reply_id: int
    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsetsReply:
    """DeleteOffsets' answer: one error code per partition, in order, unless the whole request failed."""

    error: ErrorCode = ErrorCode.NONE
    errors: tuple[ErrorCode, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroups:
    """A request to delete groups without members, with their offsets. All groups are in the shard that gets the
    request."""

    reply_id: int
    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsReply:
    """DeleteGroups' answer: one error code per group, in order."""

    errors: tuple[ErrorCode, ...]
