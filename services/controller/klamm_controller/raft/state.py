"""The state of a replica in every role: term, vote, log and high watermark, and the methods that change them.

Invariants: the term never decreases; a replica votes once per term; the high watermark never decreases and lies within
the log; `delivered_end_index <= min(high_watermark, durable_end_index)`. Because of the last one, a replica never
delivers an entry that a crash could lose. So a snapshot of the delivered entries never reaches beyond the stored log.
"""

from __future__ import annotations

import random
from collections import deque
from enum import Enum

from klamm.errors import ErrorCode
from klamm_controller.raft.effects import (
    HardState,
    Leadership,
    Outbox,
    ReadReady,
    Rejected,
    WriteSnapshotChunk,
)
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import AttachRequest, ReplicaKey, SnapshotChunkRequest, SnapshotId
from klamm_controller.raft.patience import Patience
from klamm_controller.raft.raft_log import RaftLog, StoredState
from klamm_controller.raft.settings import RaftSettings


class RoleName(Enum):
    """The role of a replica. KIP-595 and KIP-996 have more states, which differ only in what the replica knows of the
    leader."""

    FOLLOWER = "follower"
    """A replica that follows a leader or knows none. Observers, which do not vote, always have this role."""
    PROSPECTIVE = "prospective"
    """A replica that asks whether it could win an election (pre-vote)."""
    CANDIDATE = "candidate"
    LEADER = "leader"


class NodeState:
    """The state that all roles share. A replica has one role at a time."""

    def __init__(self, me: ReplicaKey, stored: StoredState, settings: RaftSettings, rng: random.Random) -> None:
        self.me = me
        self.settings = settings
        self.now_ms = 0
        """The time of the current step."""
        self.outbox = Outbox()
        self.log = RaftLog(stored, self.outbox)
        self.term = stored.hard_state.term
        self.voted_for = stored.hard_state.voted_for
        self.leader: ReplicaKey | None = None
        """The leader of `term`, or None if it is unknown."""
        self.high_watermark = stored.snapshot.end_index
        self.delivered_end_index = stored.snapshot.end_index
        self.patience = Patience(settings.election_timeout_ms, settings.election_timeout_max_ms)
        self._rng = rng
        self._installing: tuple[int, SnapshotId] | None = None
        """The (write id, snapshot) of a received snapshot, until its write is durable and the state machine can load
        it."""
        self._reads: deque[tuple[int, int]] = deque()
        """(end index, request id) of each confirmed read that waits for delivery, ordered by end index."""

    @property
    def voters(self) -> VoterSet:
        """The voter set in force."""
        return self.log.voters.latest

    @property
    def is_voter(self) -> bool:
        """True if this replica is in the voter set in force."""
        return self.me in self.log.voters.latest

    @property
    def may_stand(self) -> bool:
        """True if this replica may stand for election: its removal from the voters has not committed, as far as it
        knows (thesis 4.2.2). All voter sets after the high watermark count, and after a restart there may be many.

        Suppose that a leader appends its own removal, or that of the other voter, and crashes before this has
        committed. The replica that has the entry has the longest log and votes for no other replica. So it must stand
        for election although the entry removes it, or no replica ever wins."""
        return self.log.voters.names_since(self.high_watermark, self.me)

    @property
    def election_timeout_ms(self) -> int:
        """The election time-out in force, in milliseconds: the setting, or more after false alarms."""
        return self.patience.timeout_ms(self.now_ms)

    def random_election_timeout_ms(self) -> int:
        """Returns a random time between one and two election time-outs. Each call returns a new one, so that replicas
        do not stand against each other for ever (thesis 3.4)."""
        base_ms = self.election_timeout_ms
        return base_ms + self._rng.randrange(base_ms)

    def on_false_alarm(self) -> None:
        """Raises the election time-out, because this or another replica wrongly took a live replica for dead."""
        self.patience.on_false_alarm(self.now_ms)

    def adopt_term(self, term: int) -> None:
        """Moves to a newer term that another replica has begun."""
        assert term > self.term, (term, self.term)
        self._set_hard_state(term, None)
        self.set_leader(None)

    def vote(self, term: int, candidate: ReplicaKey) -> None:
        """Votes for a candidate in `term`. A replica votes once per term. A candidate's vote for itself begins a new
        term."""
        assert term > self.term or (term == self.term and self.voted_for is None), (term, self.term, self.voted_for)
        if term > self.term:
            self.set_leader(None)
        self._set_hard_state(term, candidate)
        self._announce_leadership()

    def set_leader(self, leader: ReplicaKey | None) -> None:
        """Sets the leader of the current term, or None."""
        if leader != self.leader:
            self.leader = leader
            self._announce_leadership()

    def advance_high_watermark(self, end_index: int) -> None:
        """Notes that all entries below `end_index` have committed, and delivers them."""
        assert self.high_watermark <= end_index <= self.log.end_index, (self.high_watermark, end_index)
        self.high_watermark = end_index
        self.deliver()

    def save_snapshot(self, snapshot: SnapshotId) -> None:
        """Drops the entries that a saved snapshot covers. Does nothing if a newer snapshot is stored."""
        if snapshot.end_index <= self.log.snapshot.end_index:
            return
        assert snapshot.end_index <= self.delivered_end_index, (snapshot, self.delivered_end_index)
        self.log.compact(snapshot, self.settings.retained_entries)

    def receive_chunk(self, chunk: SnapshotChunkRequest) -> None:
        """Writes a part of a leader's snapshot. With the last part, the log starts again at the snapshot's end."""
        self.outbox.write_snapshot_chunk(
            WriteSnapshotChunk(
                snapshot=chunk.snapshot,
                voters=chunk.voters,
                position=chunk.position,
                data=chunk.data,
                is_last=chunk.is_last,
            )
        )
        if chunk.is_last:
            assert chunk.snapshot.end_index > self.high_watermark, (chunk.snapshot, self.high_watermark)
            self.log.install(chunk.snapshot, VoterSet.from_bytes(chunk.voters))
            self.high_watermark = chunk.snapshot.end_index
            self._installing = (self.outbox.next_id, chunk.snapshot)

    def on_persisted(self, persist_id: int) -> None:
        """Notes the durable writes, sends the promises that waited for them, and delivers entries."""
        self.outbox.on_persisted(persist_id)
        self.log.on_persisted(persist_id)
        if self._installing is not None and self._installing[0] <= persist_id:
            self.outbox.restore = self._installing[1]
            self.delivered_end_index = self._installing[1].end_index
            self._installing = None
        self.deliver()

    def deliver(self) -> None:
        """Delivers the entries that are committed and durable on this replica. Then answers the reads that waited for
        them."""
        if self._installing is None:
            end_index = min(self.high_watermark, self.log.durable_end_index)
            if end_index > self.delivered_end_index:
                self.outbox.committed.extend(self.log.between(self.delivered_end_index, end_index))
                self.delivered_end_index = end_index
        while self._reads and self._reads[0][0] <= self.delivered_end_index:
            _, request_id = self._reads.popleft()
            self.outbox.replies.append(ReadReady(request_id=request_id, end_index=self.delivered_end_index))

    def ask_to_follow(self, receiver: ReplicaKey) -> None:
        """Sends an AttachRequest to a leader, or to a replica that may know the leader."""
        self.outbox.send(AttachRequest(sender=self.me, receiver=receiver, term=self.term, end_index=self.log.end_index))

    def answer_read(self, request_id: int, end_index: int) -> None:
        """Answers a confirmed read once all entries below `end_index` are delivered."""
        self._reads.append((end_index, request_id))

    def reject(self, request_id: int, code: ErrorCode) -> None:
        """Rejects a request, and names the current leader."""
        self.outbox.replies.append(Rejected(request_id=request_id, code=code, leader=self.leader))

    def redirect(self, request_id: int, leader: ReplicaKey) -> None:
        """Rejects a request with NOT_CONTROLLER, and names the replica that is about to lead."""
        self.outbox.replies.append(Rejected(request_id=request_id, code=ErrorCode.NOT_CONTROLLER, leader=leader))

    def check_invariants(self) -> None:
        """Asserts the module's invariants."""
        self.outbox.check_invariants()
        self.log.check_invariants()
        assert self.log.snapshot.end_index <= self.high_watermark <= self.log.end_index, self.high_watermark
        assert self.delivered_end_index <= self.high_watermark, (self.delivered_end_index, self.high_watermark)
        if self._installing is None:
            assert self.delivered_end_index <= self.log.durable_end_index, self.delivered_end_index
        assert self.leader != self.me or self.voted_for == self.me, (self.term, self.voted_for)

    def _set_hard_state(self, term: int, voted_for: ReplicaKey | None) -> None:
        self.term = term
        self.voted_for = voted_for
        self.outbox.write_hard_state(HardState(term=term, voted_for=voted_for))

    def _announce_leadership(self) -> None:
        self.outbox.leadership = Leadership(term=self.term, leader=self.leader)
