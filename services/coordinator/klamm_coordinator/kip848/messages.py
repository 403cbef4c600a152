"""The requests of KIP-848's members, and the answers.

A field of a request is None if it has not changed since the last request.
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm.errors import ErrorCode
from klamm_coordinator.groups.topics import Topics
from klamm_coordinator.records.consumer_group_schemas import ConsumerMemberMetadata, Current, Partitions

NO_TIMEOUT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeat:
    """A member's heartbeat. A member joins with epoch 0 and leaves with -1. A static member that will return leaves
    with -2."""

    reply_id: int
    group_id: str
    member_id: str
    """The member's id. If it is empty, the coordinator makes one (version 0 of Kafka's request)."""
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    """The member's rebalance timeout, or `NO_TIMEOUT` if it has not changed."""
    subscribed_topic_names: tuple[str, ...] | None
    subscribed_topic_regex: str | None
    """The regular expression with which the member subscribes. Empty means that the member removes its expression."""
    server_assignor: str | None
    owned: Partitions | None
    """The partitions that the member owns."""
    client_id: str
    client_host: str
    topics: Topics
    """The topics that this coordinator knows."""
    user: str = ""
    """The user for whom the memory of the group counts, if the request creates it."""

    @property
    def is_full(self) -> bool:
        """True if the heartbeat has all fields. A member sends them if it is new, or if it does not know which
        heartbeats the coordinator received. The answer then has all fields too."""
        subscribes = self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None
        return self.rebalance_timeout_ms != NO_TIMEOUT and subscribes and self.owned is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedTopic:
    """The partitions of one topic in a member's assignment or target."""

    topic_id: bytes
    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeatReply:
    """ConsumerGroupHeartbeat's answer."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: tuple[AssignedTopic, ...] | None = None
    """The assignment, or None if it has not changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceMember:
    """The coordinator's own request to remove a member that has missed a deadline."""

    group_id: str
    member_id: str
    reason: str
    """The name of the deadline, for the program's log."""
    current: Current | None
    """The assignment with which the member made no progress in time, or None if its session has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberDescription:
    """The description of a consumer group's member, as tools show it."""

    member_id: str
    member_epoch: int
    metadata: ConsumerMemberMetadata
    assignment: tuple[AssignedTopic, ...]
    target: tuple[AssignedTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescription:
    """The description of a consumer group, as tools show it."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ConsumerMemberDescription, ...]
    """The members in the order of their ids."""
