"""The events of a node besides messages of other replicas: the outcomes of effects, and requests of its owner.

The owner chooses the id of a request. The reply has the same id (effects.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm_controller.raft.messages import Message, ReplicaKey, SnapshotId, Voter


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlinePassed:
    """The time `next_deadline_ms()` has come. The node ignores this event if it comes too early or too often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPersisted:
    """All writes up to `persist_id` are durable."""

    persist_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Propose:
    """A request to append one data entry per payload. The reply comes in the same step: Appended or Rejected."""

    request_id: int
    payloads: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A request for the index up to which the state machine must be applied for a linearizable read. The reply is
    ReadReady or Rejected."""

    request_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoter:
    """A request to make an attached observer a voter once it has caught up. The reply is Appended or Rejected."""

    request_id: int
    voter: Voter


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVoter:
    """A request to remove a voter from the set. The reply comes in the same step: Appended or Rejected."""

    request_id: int
    key: ReplicaKey


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateVoter:
    """A request to store a voter's new endpoint. The reply comes in the same step: Appended or Rejected."""

    request_id: int
    voter: Voter


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferLeadership:
    """A request to hand the leadership over to `target`, or, if `target` is None, to the voter with the longest
    matching log.

    There is no reply. `Effects.leadership` shows the outcome. The leader ends the attempt after an election time-out,
    and rejects proposals until then."""

    target: ReplicaKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSaved:
    """A snapshot of the state after `snapshot.end_index` entries is durable. The node may drop the entries that it
    covers."""

    snapshot: SnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotChunkLoaded:
    """The result of a LoadSnapshotChunk. `data` is None if the store no longer has that snapshot."""

    receiver: ReplicaKey
    snapshot: SnapshotId
    position: int
    data: bytes | None
    is_last: bool


Request = Propose | Read | AddVoter | RemoveVoter | UpdateVoter | TransferLeadership
Event = Message | DeadlinePassed | LogPersisted | Request | SnapshotSaved | SnapshotChunkLoaded
