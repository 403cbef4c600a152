"""The requests of KIP-848's members, and the answers.

A field of a request is None if it has not changed since the last request.
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm.errors import ErrorCode
from klamm_coordinator.consumer.topics import Topics
from klamm_coordinator.records.consumer_group_schemas import ConsumerMemberMetadata, Partitions

NO_TIMEOUT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeat:
    """A member is alive; it joins with epoch 0, leaves with -1, and with -2 if it is static and will be back."""

    reply_id: int
    group_id: str
    member_id: str
    """Empty: one is made (version 0 of Kafka's request)."""
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    """`NO_TIMEOUT`: as it was."""
    subscribed_topic_names: tuple[str, ...] | None
    subscribed_topic_regex: str | None
    """Empty: no expression any more."""
    server_assignor: str | None
    owned: Partitions | None
    """What the member has."""
    client_id: str
    client_host: str
    topics: Topics
    """The topics that this coordinator knows."""

    @property
    def is_full(self) -> bool:
        """Whether the heartbeat has all fields. A member sends them if it is new, or if it does not know which
        heartbeats the coordinator received. The answer then has all fields too."""
        subscribes = self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None
        return self.rebalance_timeout_ms != NO_TIMEOUT and subscribes and self.owned is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedTopic:
    """Partitions of one topic."""

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
    """The coordinator has lost patience with a member."""

    group_id: str
    member_id: str
    member_epoch: int | None
    """The epoch at which the member did not revoke its partitions in time, or None if its session has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberDescription:
    """A member as people see it."""

    member_id: str
    member_epoch: int
    metadata: ConsumerMemberMetadata
    assignment: tuple[AssignedTopic, ...]
    target: tuple[AssignedTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescription:
    """A group as people see it."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ConsumerMemberDescription, ...]
    """The members in the order of their ids."""
