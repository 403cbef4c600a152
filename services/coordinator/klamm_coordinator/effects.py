"""What a step of a shard asks its shell to do, and what the core does when an append is decided.

The latter is data, not a callback, so that a step can be printed and compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from klamm_coordinator.consumer_group.messages import ConsumerGroupHeartbeatReply
from klamm_coordinator.group.member import Member
from klamm_coordinator.group.messages import HeartbeatReply, JoinReply, LeaveReply, SyncReply
from klamm_coordinator.offsets.messages import (
    CommitReply,
    DeleteGroupsReply,
    DeleteOffsetsReply,
    EndTransactionReply,
)
from klamm_coordinator.records.schemas import Record
from klamm_coordinator.write import Write

Reply = (
    JoinReply
    | SyncReply
    | HeartbeatReply
    | LeaveReply
    | CommitReply
    | DeleteOffsetsReply
    | DeleteGroupsReply
    | EndTransactionReply
    | ConsumerGroupHeartbeatReply
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyWhenStored:
    """Answers `reply`; on failure the codes in it that say success become the failure's."""

    reply_id: int
    reply: CommitReply | DeleteOffsetsReply | EndTransactionReply


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentStored:
    """The leader's assignments of a generation: once durable the group is Stable."""

    group_id: str
    generation_id: int
    assignments: dict[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticMemberStored:
    """A static member that came back under a new id while its group is Stable (KIP-345)."""

    group_id: str
    generation_id: int
    member_id: str
    former: Member
    """What it was, for the case that the append fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupStored:
    """A change of a group of the new protocol, with the answers to all whose requests made it."""

    group_id: str
    replies: tuple[tuple[int, Reply], ...]
    """On failure all of them are told so: some may rest on what was not stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsDeleted:
    """Groups that are gone once durable."""

    group_ids: tuple[str, ...]
    """Those whose tombstones are written; Dead meanwhile."""
    reply_id: int | None
    """None when nobody asked: they had expired."""
    reply: DeleteGroupsReply
    """Answered on success."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingFollows:
    """Nobody waits; `what` is for the log."""

    what: str


Then = ReplyWhenStored | AssignmentStored | StaticMemberStored | ConsumerGroupStored | GroupsDeleted | NothingFollows


@dataclass(slots=True)
class Effects:
    """Of one step, each list in order."""

    replies: list[tuple[int, Reply]] = field(default_factory=list)
    writes: list[Write[Record]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
