"""The requests and other events that a shard of groups handles."""

from __future__ import annotations

from dataclasses import dataclass

from klamm_coordinator.classic.messages import Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from klamm_coordinator.consumer.messages import ConsumerGroupHeartbeat
from klamm_coordinator.offsets.messages import CommitOffsets, DeleteGroups, DeleteOffsets, EndTransaction


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsDeleted:
    """Topics were deleted, so the offsets that were committed for them have to be deleted too."""

    topics: frozenset[str]


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
GroupEvent = Request | TopicsDeleted
