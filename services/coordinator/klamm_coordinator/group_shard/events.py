"""The requests and other events that a shard of groups handles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_coordinator.classic.messages import Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from klamm_coordinator.kip848.messages import ConsumerGroupHeartbeat
from klamm_coordinator.offsets.messages import CommitOffsets, DeleteGroups, DeleteOffsets, EndTransaction


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsDeleted:
    """Topics were deleted, so the offsets that were committed for them have to be deleted too."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class HoldsChanged:
    """Topics name other groups in `retention.hold.groups` than before."""


class LogStart(NamedTuple):
    """The log start offset of a partition in which a group has an offset."""

    group_id: str
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStartsFound:
    """The leaders told the starts of logs that lie behind committed offsets."""

    found: tuple[LogStart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetLosses:
    """A request to set the counts of lost records of a group to 0."""

    reply_id: int
    group_id: str
    topics: frozenset[str]
    """The topics whose counts are set. All topics of the group if it is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetLossesReply:
    """ForgetLosses' answer."""

    error: ErrorCode = ErrorCode.NONE
    lost_count: int = 0
    """The sum of the counts before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmOwner:
    """A request to prove that no later owner has claimed the shard's log. It appends the claim again, which the brokers
    refuse if they know a later owner."""

    reply_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmOwnerReply:
    """ConfirmOwner's answer. Without an error, the state has every commit that was acknowledged before the request."""

    error: ErrorCode = ErrorCode.NONE


Request = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | ConsumerGroupHeartbeat
    | CommitOffsets
    | DeleteOffsets
    | DeleteGroups
    | EndTransaction
    | ForgetLosses
    | ConfirmOwner
)
GroupEvent = Request | TopicsDeleted | HoldsChanged | LogStartsFound
