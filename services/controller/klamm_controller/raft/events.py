"""The events of a node besides messages of other replicas: the outcomes of effects, and requests of its owner.

The caller chooses the id of a request. The reply has the same id (effects.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm_controller.raft.messages import Message, ReplicaKey, SnapshotId, Voter


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlinePassed:
    """It is `next_deadline_ms()` or later; telling too early or too often does no harm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPersisted:
    """Every Persist up to this one is durable."""

    persist_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Propose:
    """Append one data entry per payload. Answered at once: Appended or Rejected."""

    request_id: int
    payloads: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Learn how far the state machine must be for a linearizable read. Answered by ReadReady or Rejected."""

    request_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoter:
    """Make an attached observer a voter once it has caught up. Answered by Appended or Rejected."""

    request_id: int
    voter: Voter


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVoter:
    """Take a voter out of the set. Answered at once: Appended or Rejected."""

    request_id: int
    key: ReplicaKey


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateVoter:
    """A voter is reached elsewhere. Answered at once: Appended or Rejected."""

    request_id: int
    voter: Voter


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferLeadership:
    """Hand over to `target`, or to the voter that is furthest; without answer: watch `Effects.leadership`.

    It is given up after an election time-out; until then nothing else is taken on."""

    target: ReplicaKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSaved:
    """The state after `snapshot.end_index` entries is durable; the log behind it may go."""

    snapshot: SnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotChunkLoaded:
    """The outcome of a LoadSnapshotChunk; `data` is None when the store no longer has that snapshot."""

    receiver: ReplicaKey
    snapshot: SnapshotId
    position: int
    data: bytes | None
    is_last: bool


Request = Propose | Read | AddVoter | RemoveVoter | UpdateVoter | TransferLeadership
Event = Message | DeadlinePassed | LogPersisted | Request | SnapshotSaved | SnapshotChunkLoaded
