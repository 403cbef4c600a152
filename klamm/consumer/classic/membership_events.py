"""The events that the state machine of a classic group's member takes, and the effects that it returns.

klamm.consumer.classic.membership says when each event arrives and when each effect is returned. Events and effects that
members of both protocols share are in klamm.consumer.group.membership_events.
"""

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
    """Commits and listener calls are done; these are the assignors' names with their metadata."""

    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswered:
    """JoinGroup's outcome; the code is NETWORK_EXCEPTION and the like when there was no answer."""

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
    """The leader's assignments: encoded, by member id."""

    token: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentFailed:
    """The leader's assignor, or the look-up of the topics, raised."""

    token: int
    error: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswered:
    """SyncGroup's outcome."""

    token: int
    code: ErrorCode
    message: str = ""
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswered:
    """Heartbeat's outcome."""

    identity: Identity
    code: ErrorCode
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejoinRequested:
    """The subscription, the topics or what is owned changed."""

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
    """Commit, give partitions up, call the listener; then step with JoinPrepared."""

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
    """Apply it within the next poll."""

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
