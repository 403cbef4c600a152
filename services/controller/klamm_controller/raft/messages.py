"""The messages between replicas, and the vocabulary of the log.

Indexes count entries from 0, like Kafka's offsets (the Raft paper counts from 1). Ends are exclusive: `end_index` is
the index after the last entry, so an empty log ends at 0. The high watermark is the index after the last committed
entry. A position in the log is an end and the term of the entry before it (KIP-595's OffsetAndEpoch). Before the first
entry, this term is 0.

| message                | from -> to              | meaning                                                       |
|------------------------|-------------------------|---------------------------------------------------------------|
| VoteRequest            | candidate -> voter      | will you (pre_vote: would you) vote for me (KIP-595, 996)     |
| VoteResponse           | voter -> candidate      | yes; or no, and the leader if known                           |
| AppendRequest          | leader -> replica       | entries after a position, the high watermark; or a heartbeat  |
| AppendResponse         | replica -> leader       | my log equals yours up to this end; or retry from this end    |
| SnapshotChunkRequest   | leader -> replica       | bytes of a snapshot (KIP-630)                                 |
| SnapshotChunkResponse  | replica -> leader       | the position I need next                                      |
| TimeoutNowRequest      | leader -> voter         | be a candidate now (thesis 3.10)                              |
| AttachRequest          | observer -> any replica | send me entries, or tell me the leader                        |
| AttachResponse         | non-leader -> observer  | the leader, if known                                          |

Every message carries its sender's term. io/raft_codec.py checks the ranges of all numbers when it decodes a message, so
the code of this package does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class ReplicaKey(NamedTuple):
    """The id of a replica: a node and its directory (KIP-853). A node that starts again with an empty disk is another
    replica."""

    node_id: int
    directory_id: str

    def __str__(self) -> str:
        return f"{self.node_id}@{self.directory_id}" if self.directory_id else str(self.node_id)


ANY_DIRECTORY = ""
"""The receiver's directory in an AttachRequest, because the sender does not know it yet. A negative node id stands for
a server that is known only by its address, like Kafka's bootstrap servers."""


class Voter(NamedTuple):
    """A voter and its address. The Raft code does not interpret the address."""

    key: ReplicaKey
    endpoint: str


class EntryKind(IntEnum):
    """The kind of an entry. The numbers are stored, so they must not change."""

    DATA = 0
    NO_OP = 1
    """An entry without content: the first entry of each term, and an entry of an idle leader (KIP-835)."""
    VOTERS = 2
    """A complete voter set, in force from this entry on (KIP-853's VotersRecord). The payload is
    membership.VoterSet.to_bytes."""


ENTRY_OVERHEAD_BYTES = 32
"""The bytes that each entry counts besides its payload, so that limits in bytes also limit the number of empty
entries."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of the log. Its fields are positional, unlike those of messages, because the log makes thousands of
    entries."""

    index: int
    term: int
    kind: EntryKind
    payload: bytes

    @property
    def size_bytes(self) -> int:
        """The bytes that the entry counts toward limits."""
        return ENTRY_OVERHEAD_BYTES + len(self.payload)

    def describe(self) -> str:
        """Returns a short text for traces, as index/term:kind."""
        return f"{self.index}/{self.term}:{self.kind.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotId:
    """The id of a snapshot: the state after all entries below `end_index`. The last of these entries has `term`
    (KIP-630's OffsetAndEpoch)."""

    end_index: int
    term: int

    def __str__(self) -> str:
        return f"{self.end_index}/{self.term}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    """Asks for a vote in `term`. With `pre_vote`, asks whether the voter would vote for the sender in the next term."""

    sender: ReplicaKey
    receiver: ReplicaKey
    term: int
    pre_vote: bool
    end_index: int
    """The end of the candidate's log."""
    last_term: int
    """The term of the last entry in the candidate's log."""

    def describe(self) -> str:
        return f"{'PreVote' if self.pre_vote else 'Vote'}Request log={self.end_index}/{self.last_term}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse:
    """A voter's answer. `term` is the voter's term, so that a candidate of an older term learns of it. A granted
    pre-vote has the term of the request."""

    sender: ReplicaKey
    receiver: ReplicaKey
    term: int
    pre_vote: bool
    granted: bool
    leader: ReplicaKey | None
    """The leader of `term`, or None if the vote was granted or the voter knows no leader."""

    def describe(self) -> str:
        leader = f" leader={self.leader}" if self.leader else ""
        return f"{'PreVote' if self.pre_vote else 'Vote'}Response {'granted' if self.granted else 'refused'}{leader}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRequest:
    """Entries from `base_index` on. The receiver appends them only if its entry before `base_index` has the term
    `prev_term`."""

    sender: ReplicaKey
    receiver: ReplicaKey
    term: int
    base_index: int
    prev_term: int
    entries: tuple[LogEntry, ...]
    high_watermark: int
    """The leader's high watermark. It may lie after these entries."""
    read_round: int
    """The leader's round of reads. The response echoes it, which proves to linearizable reads that the leader still
    led."""

    def describe(self) -> str:
        entries = " ".join(entry.describe() for entry in self.entries)
        return f"AppendRequest after={self.base_index}/{self.prev_term} hw={self.high_watermark} [{entries}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendResponse:
    """The answer to an AppendRequest or to the last chunk of a snapshot.

    Accepted: the follower's log up to `end_index` is durable and equals the leader's. Rejected: the follower has no
    entry of the term `prev_term` before `base_index`. The logs may agree up to `end_index`, and the follower's entry
    before it has the term `last_term` (KIP-595's DivergingEpoch)."""

    sender: ReplicaKey
    receiver: ReplicaKey
    term: int
    rejected: bool
    base_index: int
    """The `base_index` of the request that this answers."""
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
    """The position of the first byte that the receiver lacks."""
    read_round: int

    def describe(self) -> str:
        return f"SnapshotChunkResponse {self.snapshot} position={self.position}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutNowRequest:
    """Tells a voter with the leader's whole log to stand for election without a pre-vote."""

    sender: ReplicaKey
    receiver: ReplicaKey
    term: int

    def describe(self) -> str:
        return "TimeoutNowRequest"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachRequest:
    """The request of a replica to which no leader sends entries: it asks the leader to send them."""

    sender: ReplicaKey
    receiver: ReplicaKey
    term: int
    end_index: int
    """The end of the sender's log. The leader starts from it to find where the logs agree."""

    def describe(self) -> str:
        return f"AttachRequest end={self.end_index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachResponse:
    """The answer to an AttachRequest of a replica that is not the leader. `leader` is None if it knows no leader."""

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
