"""The events of the state machine of a classic group's member, and the effects that it returns.

klamm.consumer.classic.membership says when each event arrives and when each effect is returned. Events and effects that
members of both protocols share are in klamm.consumer.group.membership_events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from klamm.consumer.group.identity import NO_GENERATION, Identity
from klamm.consumer.group.membership_events import (
    CommitRefused,
    Fail,
    ForgetCoordinator,
    LeaveRequested,
    Polled,
    Ticked,
    WakePoll,
)
from klamm.errors import ErrorCode


class JoinGroupMember(NamedTuple):
    """A member as JoinGroup describes it to the leader."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


# --- events


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinPrepared:
    """The commits and listener calls before a join have ended. The protocols are the assignors' names and their
    metadata."""

    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswered:
    """The outcome of JoinGroup. Without an answer, the code is NETWORK_EXCEPTION or similar."""

    token: int
    code: ErrorCode
    message: str = ""
    generation_id: int = NO_GENERATION
    protocol_name: str = ""
    leader: str = ""
    member_id: str = ""
    members: tuple[JoinGroupMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentComputed:
    """The leader has computed the assignments, which are encoded by member id."""

    token: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentFailed:
    """The leader's assignor, or its look-up of the topics, raised an error."""

    token: int
    error: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswered:
    """The outcome of SyncGroup."""

    token: int
    code: ErrorCode
    message: str = ""
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswered:
    """The outcome of a heartbeat."""

    identity: Identity
    code: ErrorCode
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejoinRequested:
    """The subscription, the topics or the owned partitions have changed."""

    reason: str


ClassicEvent = (
    Polled
    | Ticked
    | JoinPrepared
    | JoinAnswered
    | AssignmentComputed
    | AssignmentFailed
    | SyncAnswered
    | HeartbeatAnswered
    | CommitRefused
    | RejoinRequested
    | LeaveRequested
)


# --- effects


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareJoin:
    """The caller commits, revokes partitions and calls the listener. Then it steps with JoinPrepared."""

    lost: bool
    """True if the membership has ended, so that another member may already own the partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendJoin:
    token: int
    member_id: str
    protocols: tuple[tuple[str, bytes], ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeAssignment:
    token: int
    protocol_name: str
    members: tuple[JoinGroupMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendSync:
    token: int
    identity: Identity
    protocol_name: str
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendHeartbeat:
    identity: Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class SendLeave:
    member_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeAssignment:
    """The caller applies the assignment within the next poll."""

    generation_id: int
    protocol_name: str
    assignment: bytes


ClassicEffect = (
    PrepareJoin
    | SendJoin
    | ComputeAssignment
    | SendSync
    | SendHeartbeat
    | SendLeave
    | TakeAssignment
    | ForgetCoordinator
    | WakePoll
    | Fail
)


ClassicEffects = list[ClassicEffect]
