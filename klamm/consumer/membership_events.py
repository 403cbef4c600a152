"""What happens to a group member (events), and what its state machine wants done about it (effects).

The vocabulary of klamm.consumer.membership, which says when each comes and goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from klamm.consumer.identity import NO_GENERATION, Identity
from klamm.errors import ErrorCode


class JoinedMember(NamedTuple):
    """A member as JoinGroup describes it to the leader."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


# --- events


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """The user polls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """A deadline may have passed."""


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
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentComputed:
    """By the leader, member id to encoded assignment."""

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
class CommitRefused:
    """OffsetCommit answered a code that says something about this membership."""

    identity: Identity
    code: ErrorCode
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejoinRequested:
    """The subscription, the topics or what is owned changed."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRequested:
    """The user unsubscribes or closes. A static member leaves only when `static` says so."""

    reason: str
    static: bool = False


Event = (
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
    """The membership ended: what is owned may already be somebody else's."""


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
    members: tuple[JoinedMember, ...]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetCoordinator:
    """Look it up again before the next call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WakePoll:
    """The next poll has something to do; one that waits should go on now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """Raise this from the next poll."""

    error: Exception


Effect = (
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
Effects = list[Effect]
