"""The requests of a classic group's members, and the answers.

A request carries a `reply_id`. Exactly one answer with that id follows, at once or later. `instance_id` is the
group.instance.id of a static member (KIP-345), or None. Ids are never empty, except that a `member_id` is empty until
the member gets an id.
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm.errors import ErrorCode
from klamm_coordinator.groups.topics import NO_TOPICS, Topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """An assignor that a member supports, and the member's metadata for it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """A member's request to enter a group or a new generation of it."""

    reply_id: int
    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    """The member's protocols in order of preference."""
    reason: str
    """The reason for the join, as the client gives it (KIP-800)."""
    user: str = ""
    """The user for whom the memory of the group counts, if the request creates it."""
    joins_without_id: bool = False
    """True if a member with an empty `member_id` joins at once. False if it gets an id first and then asks again
    (KIP-394)."""
    topics: Topics = NO_TOPICS
    """The topics that this coordinator knows, for a member that joins a consumer group (KIP-848)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """A member's request for its assignment. The leader's request also carries the assignments of all members."""

    reply_id: int
    group_id: str
    generation_id: int
    member_id: str
    instance_id: str | None
    protocol_type: str
    """The protocol type that the member expects. If it is empty, the coordinator does not check it."""
    protocol_name: str
    """The protocol that the member expects. If it is empty, the coordinator does not check it."""
    assignments: tuple[tuple[str, bytes], ...]
    """Pairs of a member id and its assignment. Only the leader sends them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A member's heartbeat."""

    reply_id: int
    group_id: str
    generation_id: int
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaver:
    """A member that leaves the group. `member_id` may be empty if an administrator removes a static member."""

    member_id: str
    instance_id: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """A request of one or more members to leave the group at once (KIP-345)."""

    reply_id: int
    group_id: str
    leavers: tuple[Leaver, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """A member in the leader's JoinGroup answer."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReply:
    """JoinGroup's answer. The fields after `member_id` are set only if there is no error."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation_id: int = -1
    protocol_type: str = ""
    protocol_name: str = ""
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    """All members, for the leader only."""
    skip_assignment: bool = False
    """True if the leader must keep the assignments in force and not compute new ones (KIP-814)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReply:
    """SyncGroup's answer."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str = ""
    protocol_name: str = ""
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    """Heartbeat's answer."""

    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveReply:
    """LeaveGroup's answer: one code per leaver, in order, unless the whole request failed."""

    error: ErrorCode = ErrorCode.NONE
    members: tuple[ErrorCode, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMemberDescription:
    """The description of a member. Its metadata and assignment are those in force, and empty unless the group is
    Stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes
    rebalance_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupDescription:
    """The description of a classic group, as tools show it."""

    group_id: str
    state: str
    protocol_type: str = ""
    protocol_name: str = ""
    generation_id: int = 0
    leader: str = ""
    members: tuple[ClassicMemberDescription, ...] = ()
    """The members in the order of their ids."""
