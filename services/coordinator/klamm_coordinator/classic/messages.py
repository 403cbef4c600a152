"""The requests of a classic group's members, and the answers.

A request carries a `reply_id`; exactly one answer with that id comes back, at once or when the group gets
there. `instance_id` is group.instance.id of a static member (KIP-345) or None; ids are never empty strings
except a `member_id`, where empty means "none yet".
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """An assignor a member supports."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """A member enters a group or a new generation of it."""

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
    """KIP-800."""
    joins_without_id: bool = False
    """Whether a member with an empty `member_id` joins at once, instead of being given an id first (KIP-394)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """A member asks for its assignment; the leader brings everybody's."""

    reply_id: int
    group_id: str
    generation_id: int
    member_id: str
    instance_id: str | None
    protocol_type: str
    """Empty: not checked."""
    protocol_name: str
    """Empty: not checked."""
    assignments: tuple[tuple[str, bytes], ...]
    """(member id, assignment); from the leader only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A member is alive."""

    reply_id: int
    group_id: str
    generation_id: int
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaver:
    """A member that leaves; `member_id` may be empty for a static member (administrative removal)."""

    member_id: str
    instance_id: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """Members leave at once (KIP-345 batch form)."""

    reply_id: int
    group_id: str
    leavers: tuple[Leaver, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReply:
    """JoinGroup's answer; the fields after `member_id` belong to a success."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation_id: int = -1
    protocol_type: str = ""
    protocol_name: str = ""
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    """All members, for the leader only."""
    skip_assignment: bool = False
    """KIP-814: the leader takes the assignments in force."""


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
    """A member; metadata and assignment are those in force, empty unless the group is Stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupDescription:
    """A group as people see it."""

    group_id: str
    state: str
    protocol_type: str = ""
    protocol_name: str = ""
    generation_id: int = 0
    leader: str = ""
    members: tuple[ClassicMemberDescription, ...] = ()
    """The members in the order of their ids."""
