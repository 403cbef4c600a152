"""The messages between replicas, and the terms of the log.

Indexes count entries from 0; ends are exclusive: `end_index` is one past the last entry, so the empty log ends at 0
and the high watermark is the end of what is committed (Kafka's offsets, not the paper's 1-based indexes). A position
in the log is named by an end and the term of the entry before it (KIP-595's OffsetAndEpoch); before the first entry
that term is 0.

| message                | from -> to              | says                                                          |
|------------------------|-------------------------|---------------------------------------------------------------|
| VoteRequest            | candidate -> voter      | will you (pre_vote: would you) vote for me (KIP-595, 996)     |
| VoteResponse           | voter -> candidate      | yes; or no, and who leads                                     |
| AppendRequest          | leader -> replica       | entries after a position, the high watermark; also heartbeat  |
| AppendResponse         | replica -> leader       | my log equals yours up to here; or try again from there       |
| SnapshotChunkRequest   | leader -> replica       | bytes of a snapshot (KIP-630)                                 |
| SnapshotChunkResponse  | replica -> leader       | the position I need next                                      |
| TimeoutNowRequest      | leader -> voter         | be a candidate now (thesis 3.10)                              |
| AttachRequest          | observer -> anybody     | I follow without being listed: tell me, or who leads          |
| AttachResponse         | not the leader -> it    | who leads                                                     |

Every message carries its sender's term. The code that decodes messages from the wire checks ranges: in here they hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class ReplicaKey(NamedTuple):
    """A replica is a node with a directory (KIP-853). A node that starts again with an empty disk is another
    replica."""

    node_id: int
    directory_id: str

    def __str__(self) -> str:
        return f"{self.node_id}@{self.directory_id}" if self.directory_id else str(self.node_id)


ANY_DIRECTORY = ""
"""The receiver's directory in an AttachRequest, because the sender does not know it yet. A negative node id stands for
a server of which only the address is known, as for Kafka's bootstrap servers."""


class Voter(NamedTuple):
    """A replica that votes, and where the others reach it (opaque here)."""

    key: ReplicaKey
    endpoint: str


class EntryKind(IntEnum):
    """What an entry is for; the numbers are stored."""

    DATA = 0
    NO_OP = 1
    """The first entry of each term, and of an idle leader (KIP-835)."""
    VOTERS = 2
    """The whole voter set from here on (KIP-853's VotersRecord); payload: membership.VoterSet.to_bytes."""


ENTRY_OVERHEAD_BYTES = 32
"""Counted per entry beside its payload, so that empty entries cannot be unbounded in number."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry. Positional, unlike messages: the log makes them by the thousand."""

    index: int
    term: int
    kind: EntryKind
    payload: bytes

    @property
    def size_bytes(self) -> int:
        """What it counts toward limits."""
        return ENTRY_OVERHEAD_BYTES + len(self.payload)

    def describe(self) -> str:
        """One word for traces."""
        return f"{self.index}/{self.term}:{self.kind.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotId:
    """The state after every entry below `end_index`, the last of which has `term` (KIP-630's OffsetAndEpoch)."""

    end_index: int
    term: int

    def __str__(self) -> str:
        return f"{self.end_index}/{self.term}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    """Asks for a vote in `term`; with `pre_vote`, whether one would be given in the term after it."""

    sender: ReplicaKey
    receiver: ReplicaKey
    term: int
    pre_vote: bool
    end_index: int
    """The end of the candidate's log."""
    last_term: int
    """The term of its last entry."""

    def describe(self) -> str:
        return f"{'PreVote' if self.pre_vote else 'Vote'}Request log={self.end_index}/{self.last_term}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse:
    """`term` is the voter's own, which tells a candidate that it is behind; in a granted pre-vote, the one asked in."""

    sender: ReplicaKey
    receiver: ReplicaKey
    term: int
    pre_vote: bool
    granted: bool
    leader: ReplicaKey | None
    """The leader of `term`, if the voter refuses and knows it."""

    def describe(self) -> str:
        leader = f" leader={self.leader}" if self.leader else ""
        return f"{'PreVote' if self.pre_vote else 'Vote'}Response {'granted' if self.granted else 'refused'}{leader}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRequest:
    """Entries from `base_index` on, to be taken only by a log that has `prev_term` just before it."""

    sender: ReplicaKey
    receiver: ReplicaKey
    term: int
    base_index: int
    prev_term: int
    entries: tuple[LogEntry, ...]
    high_watermark: int
    """The leader's; it may lie beyond these entries."""
    read_round: int
    """Echoed in the response; proves to linearizable reads that the leader still led."""

    def describe(self) -> str:
        entries = " ".join(entry.describe() for entry in self.entries)
        return f"AppendRequest after={self.base_index}/{self.prev_term} hw={self.high_watermark} [{entries}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendResponse:
    """Accepted: up to `end_index` the log is durable and equals the leader's.

    Rejected: the log has no entry of the request's `prev_term` before `base_index`; the logs may agree up to
    `end_index`, before which the follower has an entry of `last_term` (KIP-595's DivergingEpoch)."""

    sender: ReplicaKey
    receiver: ReplicaKey
    term: int
    rejected: bool
    base_index: int
    """The base index of the request that this answers."""
    end_index: int
    last_term: int
    read_round: int

    def describe(self) -> str:
        if self.rejected:
            return f"AppendResponse rejected after={self.base_index} hint={self.end_index}/{self.last_term}"
        return f"AppendResponse end={self.end_index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotChunkRequest:
    """The bytes of the leader's snapshot at `position`."""

    sender: ReplicaKey
    receiver: ReplicaKey
    term: int
    snapshot: SnapshotId
    voters: bytes
    """The voter set as of the snapshot (membership.VoterSet.to_bytes)."""
    position: int
    data: bytes
    is_last: bool
    read_round: int

    def describe(self) -> str:
        end = self.position + len(self.data)
        return f"SnapshotChunkRequest {self.snapshot} bytes={self.position}..{end}{' last' if self.is_last else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotChunkResponse:
    """Asks for the rest of `snapshot`. An AppendResponse acknowledges its end."""

    sender: ReplicaKey
    receiver: ReplicaKey
    term: int
    snapshot: SnapshotId
    position: int
    """The first byte not there yet."""
    read_round: int

    def describe(self) -> str:
        return f"SnapshotChunkResponse {self.snapshot} position={self.position}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutNowRequest:
    """The receiver has everything: it may stand for election without asking first."""

    sender: ReplicaKey
    receiver: ReplicaKey
    term: int

    def describe(self) -> str:
        return "TimeoutNowRequest"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachRequest:
    """A replica to which no leader sends entries asks to be sent them."""

    sender: ReplicaKey
    receiver: ReplicaKey
    term: int
    end_index: int
    """The end of its log, where the leader begins to look for a common point."""

    def describe(self) -> str:
        return f"AttachRequest end={self.end_index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachResponse:
    """The answer of a replica that does not lead."""

    sender: ReplicaKey
    receiver: ReplicaKey
    term: int
    leader: ReplicaKey | None

    def describe(self) -> str:
        return f"AttachResponse leader={self.leader}"


Message = (
    VoteRequest
    | VoteResponse
    | AppendRequest
    | AppendResponse
    | SnapshotChunkRequest
    | SnapshotChunkResponse
    | TimeoutNowRequest
    | AttachRequest
    | AttachResponse
)
