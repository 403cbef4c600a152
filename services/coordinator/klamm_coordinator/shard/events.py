"""What can happen to a shard besides requests."""

from __future__ import annotations

from dataclasses import dataclass

from klamm.errors import ErrorCode
from klamm_coordinator.consumer_group.messages import ConsumerGroupHeartbeat
from klamm_coordinator.group.messages import Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from klamm_coordinator.offsets.messages import CommitOffsets, DeleteGroups, DeleteOffsets, EndTransaction


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteAppended:
    """All in-sync replicas have the write's records. Writes are decided in their order."""

    write_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFailed:
    """The write's records are not in the log and never will be."""

    write_id: int
    error: ErrorCode
    """What the broker said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsDeleted:
    """These topics are gone, and with them what anybody committed for them."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed:
    """A deadline may be due."""


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
)
Event = Request | WriteAppended | WriteFailed | TopicsDeleted | TimePassed
