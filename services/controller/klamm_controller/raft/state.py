"""What a replica is whatever its role: term, vote, log, high watermark; and the few ways to change them.

Invariants: the term never decreases; one vote per term; the high watermark never decreases and lies within the log;
`delivered_end_index <= min(high_watermark, durable_end_index)`: a replica never shows what it could forget, so a
snapshot taken of what was delivered never reaches beyond the stored log.
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
    """KIP-595's and KIP-996's states, less those that differ only in what is known of the leader."""

    FOLLOWER = "follower"
    """Follows a leader, or knows none; also every replica that does not vote (an observer)."""
    PROSPECTIVE = "prospective"
    """Asks whether it could win an election (pre-vote)."""
    CANDIDATE = "candidate"
    LEADER = "leader"


class NodeState:
    """Shared by the roles, of which there is one at a time."""

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
        """The leader of `term`, if known."""
        self.high_watermark = stored.snapshot.end_index
        self.delivered_end_index = stored.snapshot.end_index
        self.patience = Patience(settings.election_timeout_ms, settings.election_timeout_max_ms)
        self._rng = rng
        self._installing: tuple[int, SnapshotId] | None = None
        """(write, snapshot) until the write is durable and the snapshot can be handed to the state machine."""
        self._reads: deque[tuple[int, int]] = deque()
        """(end index, request id) of confirmed reads that wait for delivery; by end index."""

    @property
    def voters(self) -> VoterSet:
        """The set in force."""
        return self.log.voters.latest

    @property
    def is_voter(self) -> bool:
        """Whether its vote counts."""
        return self.me in self.log.voters.latest

    @property
    def may_stand(self) -> bool:
        """Whether it may be needed as a leader: as long as its removal is not committed, as far as it knows (thesis
        4.2.2). All sets beyond the high watermark count: after a restart that may be many.

        A leader appends the removal of the other voter, or its own, and crashes or is cut off before that is
        committed. The replica that has the entry has the longest log and votes for no other; so it must stand, although
        it is no voter by that entry, or no replica ever wins."""
        return self.log.voters.names_since(self.high_watermark, self.me)

    @property
    def election_timeout_ms(self) -> int:
        """The one in force: the setting, or more after false alarms."""
        return self.patience.timeout_ms(self.now_ms)

    def random_election_timeout_ms(self) -> int:
        """A new random time at each call, so that equals do not stand against each other for ever (thesis 3.4)."""
        base_ms = self.election_timeout_ms
        return base_ms + self._rng.randrange(base_ms)

    def on_false_alarm(self) -> None:
        """Silence was taken for death, here or at another voter, and it was none."""
        self.patience.on_false_alarm(self.now_ms)

    def adopt_term(self, term: int) -> None:
        """Moves on to a term of somebody else's."""
        assert term > self.term, (term, self.term)
        self._set_hard_state(term, None)
        self.set_leader(None)

    def vote(self, term: int, candidate: ReplicaKey) -> None:
        """Votes, once per term; a vote for oneself begins that term."""
        assert term > self.term or (term == self.term and self.voted_for is None), (term, self.term, self.voted_for)
        if term > self.term:
            self.set_leader(None)
        self._set_hard_state(term, candidate)
        self._tell_leadership()

    def set_leader(self, leader: ReplicaKey | None) -> None:
        """Notes who leads in the current term."""
        if leader != self.leader:
            self.leader = leader
            self._tell_leadership()

    def advance_high_watermark(self, end_index: int) -> None:
        """Everything below `end_index` is certain."""
        assert self.high_watermark <= end_index <= self.log.end_index, (self.high_watermark, end_index)
        self.high_watermark = end_index
        self.deliver()

    def save_snapshot(self, snapshot: SnapshotId) -> None:
        """Cuts the log behind a snapshot of the state machine; an older one than the newest changes nothing."""
        if snapshot.end_index <= self.log.snapshot.end_index:
            return
        assert snapshot.end_index <= self.delivered_end_index, (snapshot, self.delivered_end_index)
        self.log.compact(snapshot, self.settings.retained_entries)

    def receive_chunk(self, chunk: SnapshotChunkRequest) -> None:
        """Writes a part of a snapshot; with the last part the log starts again behind the snapshot."""
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
        """Notes what is durable, lets promises go, and delivers what may be shown now."""
        self.outbox.on_persisted(persist_id)
        self.log.on_persisted(persist_id)
        if self._installing is not None and self._installing[0] <= persist_id:
            self.outbox.restore = self._installing[1]
            self.delivered_end_index = self._installing[1].end_index
            self._installing = None
        self.deliver()

    def deliver(self) -> None:
        """Hands on what is committed and durable here, then answers the reads that waited for it."""
        if self._installing is None:
            end_index = min(self.high_watermark, self.log.durable_end_index)
            if end_index > self.delivered_end_index:
                self.outbox.committed.extend(self.log.between(self.delivered_end_index, end_index))
                self.delivered_end_index = end_index
        while self._reads and self._reads[0][0] <= self.delivered_end_index:
            _, request_id = self._reads.popleft()
            self.outbox.replies.append(ReadReady(request_id=request_id, end_index=self.delivered_end_index))

    def ask_to_follow(self, receiver: ReplicaKey) -> None:
        """Announces itself to a leader, or to somebody who may know one."""
        self.outbox.send(AttachRequest(sender=self.me, receiver=receiver, term=self.term, end_index=self.log.end_index))

    def answer_read(self, request_id: int, end_index: int) -> None:
        """A confirmed read: answered when the state machine has everything below `end_index`."""
        self._reads.append((end_index, request_id))

    def reject(self, request_id: int, code: ErrorCode) -> None:
        """Turns a request down."""
        self.outbox.replies.append(Rejected(request_id=request_id, code=code, leader=self.leader))

    def redirect(self, request_id: int, leader: ReplicaKey) -> None:
        """Turns a request down in favour of the replica that is about to lead."""
        self.outbox.replies.append(Rejected(request_id=request_id, code=ErrorCode.NOT_CONTROLLER, leader=leader))

    def check_invariants(self) -> None:
        """See the module."""
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

    def _tell_leadership(self) -> None:
        self.outbox.leadership = Leadership(term=self.term, leader=self.leader)
