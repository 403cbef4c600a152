"""Groups and their members."""

from __future__ import annotations

from dataclasses import dataclass

from klamm.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    group_id: str
    protocol_type: str
    """`consumer`, or empty for a group that only stores offsets."""
    state: str
    """Empty, PreparingRebalance, CompletingRebalance, Stable or Dead; of the new protocol Empty, Assigning, Reconciling
    or Stable."""
    type: str
    """`classic`, or `consumer` for the new protocol (KIP-848)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    """The topics that the member subscribes to. They are known only if it uses the consumer protocol."""
    assignment: tuple[TopicPartition, ...]
    epoch: int = -1
    """The member's epoch in the new protocol."""
    pattern: str = ""
    """The expression with which the member subscribes in the new protocol, or empty."""
    target: tuple[TopicPartition, ...] = ()
    """The member's target assignment in the new protocol."""
    type: str = "classic"
    """The member's protocol: `classic`, or `consumer` (KIP-848). A group that changes its protocol has members of
    both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group_id: str
    state: str
    protocol_type: str
    assignor: str
    """The name of the assignor that the group uses, or empty."""
    generation_id: int
    leader: str
    """The id of the member that computes assignments, or empty."""
    coordinator_id: int
    members: tuple[MemberDescription, ...]
    type: str = "classic"
    """The group's protocol: `classic`, or `consumer` (KIP-848). A consumer group has epochs instead of generations, and
    no leader."""
    group_epoch: int = -1
    """The group's epoch in the new protocol. It grows with every change of members, subscriptions or topics."""
    assignment_epoch: int = -1
    """The group epoch in the new protocol for which the coordinator last made assignments."""
