"""What a shard of groups is asked, and told."""

from __future__ import annotations

from dataclasses import dataclass

from klamm_coordinator.classic.messages import Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from klamm_coordinator.consumer.messages import ConsumerGroupHeartbeat
from klamm_coordinator.offsets.messages import CommitOffsets, DeleteGroups, DeleteOffsets, EndTransaction


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsDeleted:
    """These topics are gone, and with them what anybody committed for them."""

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
