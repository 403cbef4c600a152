"""The role of a leader in one term: replication, commit, reads and resignation.

A leader commits by counting replicas only for entries of its own term (thesis 3.6.2). It begins its term with a no-op,
so it can soon commit. It sends entries to the replicas while it writes them itself, and counts its own copy only when
it is durable (thesis 10.2.1). It resigns if no majority answers within an election time-out (check-quorum). It also
resigns if its removal from the voters has committed, or if it learns of a higher term. Voter changes are in
voter_changes.py.
"""

from __future__ import annotations

from klamm.errors import ErrorCode
from klamm_controller.raft.effects import Appended
from klamm_controller.raft.events import (
    AddVoter,
    Propose,
    Read,
    RemoveVoter,
    SnapshotChunkLoaded,
    TransferLeadership,
    UpdateVoter,
)
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import (
    ENTRY_OVERHEAD_BYTES,
    AppendResponse,
    AttachRequest,
    EntryKind,
    LogEntry,
    ReplicaKey,
    SnapshotChunkResponse,
    TimeoutNowRequest,
)
from klamm_controller.raft.quorum import majority_reached
from klamm_controller.raft.read_index import ReadIndex
from klamm_controller.raft.replication import Replication
from klamm_controller.raft.state import NodeState, RoleName
from klamm_controller.raft.transfer import Transfer, choose_successor
from klamm_controller.raft.voter_changes import VoterChanges


class Leader:
    """The role of a leader, from its election until it resigns.

    Invariants: the leader's log only grows; `term_start_index` is the index of the first entry of its term; every other
    voter has a progress."""

    name = RoleName.LEADER

    def __init__(self, state: NodeState) -> None:
        self.next_role: RoleName | None = None
        self.term_start_index = state.log.end_index
        self._state = state
        self._reads = ReadIndex()
        self.replication = Replication(state, self._reads)
        self._changes = VoterChanges(state, self.replication)
        self._transfer: Transfer | None = None
        self._heartbeat_ms = state.now_ms + state.settings.heartbeat_interval_ms
        self._last_append_ms = state.now_ms
        self._uncommitted_bytes = sum(
            entry.size_bytes for entry in state.log.between(state.high_watermark, state.log.end_index)
        )
        """The bytes of the entries after the high watermark."""
        state.set_leader(state.me)
        self._append(((EntryKind.NO_OP, b""),))

    @property
    def deadline_ms(self) -> int:
        """The time of the next heartbeat. All other time-outs are checked with the heartbeats."""
        return self._heartbeat_ms

    @property
    def is_handing_over(self) -> bool:
        """True while the leader hands the leadership over to another replica."""
        return self._transfer is not None

    @property
    def has_committed_own_term(self) -> bool:
        """True once an entry of this term has committed. Then all entries that earlier leaders committed are known to
        be committed."""
        return self._state.high_watermark > self.term_start_index

    def on_deadline(self) -> None:
        """Sends a heartbeat to all replicas and handles all expired time-outs. Resigns if no majority has answered in
        time."""
        state = self._state
        if state.now_ms < self._heartbeat_ms:
            return
        self._heartbeat_ms = state.now_ms + state.settings.heartbeat_interval_ms
        if not self._has_quorum():
            self.next_role = RoleName.FOLLOWER
            return
        if self._transfer is not None and state.now_ms >= self._transfer.deadline_ms:
            self._transfer = None
        self._changes.on_deadline()
        self.replication.forget_silent_observers()
        self._maybe_append_idle_no_op()
        self.replication.broadcast(heartbeat=True)
        self._advance_transfer()

    def on_persisted(self) -> None:
        """Commits further entries, because more of the leader's own log is durable."""
        self._advance()

    def on_propose(self, event: Propose) -> None:
        """Appends the payloads. Rejects them if the leadership is being handed over or too many bytes are
        uncommitted."""
        state = self._state
        size_bytes = sum(ENTRY_OVERHEAD_BYTES + len(payload) for payload in event.payloads)
        if self._transfer is not None:
            state.redirect(event.request_id, self._transfer.target)
        elif self._uncommitted_bytes + size_bytes > state.settings.uncommitted_bytes_max:
            state.reject(event.request_id, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        else:
            base_index = self._append(tuple((EntryKind.DATA, payload) for payload in event.payloads))
            self._reply_appended(event.request_id, base_index)

    def on_read(self, event: Read) -> None:
        """Queues the read and confirms the leadership. The reply comes when a majority has echoed the read's round."""
        if len(self._reads) >= self._state.settings.reads_max:
            self._state.reject(event.request_id, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            return
        self._reads.add(event.request_id, self._state.high_watermark)
        self._begin_read_round()

    def on_add_voter(self, event: AddVoter) -> None:
        """Queues the change. The new set is appended once the observer has caught up."""
        self._changes.begin_add(event, may_change=self._may_change_voters())
        self._advance_voter_change()

    def on_remove_voter(self, event: RemoveVoter) -> None:
        """Appends the voter set without the voter. It takes effect at once, before it commits."""
        self._append_voters(event.request_id, self._changes.remove(event, may_change=self._may_change_voters()))

    def on_update_voter(self, event: UpdateVoter) -> None:
        """Appends the same voters with the voter's new endpoint."""
        self._append_voters(event.request_id, self._changes.update(event, may_change=self._may_change_voters()))

    def on_transfer(self, event: TransferLeadership) -> None:
        """Starts to hand the leadership over. Ignores the request if a transfer is in progress or no voter can take
        over."""
        state = self._state
        target = event.target or choose_successor(state.voters, self.replication.peers)
        if self._transfer is not None or target is None:
            return
        if target in state.voters and target in self.replication.peers:
            self._transfer = Transfer(target=target, deadline_ms=state.now_ms + state.settings.election_timeout_ms)
            self._advance_transfer()

    def on_attach(self, request: AttachRequest) -> None:
        """Starts to send to a replica that receives nothing: an observer, or a voter whose connection was lost."""
        self.replication.attach(request.sender, request.end_index)

    def on_append_response(self, response: AppendResponse) -> None:
        """Updates the progress of the replica, commits if a majority has more entries, and sends further entries."""
        progress = self.replication.on_contact(response.sender, response.read_round)
        if progress is None:
            return
        if response.rejected:
            self.replication.on_rejected(response)
        elif self.replication.on_accepted(response.sender, response.end_index):
            self._advance()
            self._advance_voter_change()
            self._advance_transfer()
        self._confirm_reads()

    def on_snapshot_chunk_response(self, response: SnapshotChunkResponse) -> None:
        """Sends the next chunk that the replica asks for."""
        if self.replication.on_contact(response.sender, response.read_round) is not None:
            self.replication.on_chunk_needed(response)
            self._confirm_reads()

    def on_chunk_loaded(self, event: SnapshotChunkLoaded) -> None:
        """Sends the chunk that the store has read."""
        self.replication.on_chunk_loaded(event)

    def resign(self) -> None:
        """Rejects the requests that the leader can no longer answer. The outcome of its uncommitted entries stays
        open."""
        for read in self._reads.abandon():
            self._state.reject(read.request_id, ErrorCode.NOT_CONTROLLER)
        self._changes.abandon()

    def check_invariants(self) -> None:
        """Asserts the class's invariants."""
        state = self._state
        assert state.leader == state.me, (state.term, state.leader)
        assert state.log.last_term == state.term, (state.log.last_term, state.term)
        assert self._uncommitted_bytes >= 0, self._uncommitted_bytes
        assert self.term_start_index < state.log.end_index, self.term_start_index
        for voter in state.voters.keys:
            assert voter == state.me or voter in self.replication.peers, voter
        self.replication.check_invariants()

    def _append(self, records: tuple[tuple[EntryKind, bytes], ...]) -> int:
        """Appends entries of this term and sends them. Returns the index of the first entry."""
        state = self._state
        base_index = state.log.end_index
        entries = tuple(
            LogEntry(base_index + offset, state.term, kind, payload) for offset, (kind, payload) in enumerate(records)
        )
        state.log.append(entries)
        self._uncommitted_bytes += sum(entry.size_bytes for entry in entries)
        self._last_append_ms = state.now_ms
        self.replication.broadcast()
        return base_index

    def _reply_appended(self, request_id: int, base_index: int) -> None:
        state = self._state
        state.outbox.replies.append(
            Appended(request_id=request_id, base_index=base_index, end_index=state.log.end_index, term=state.term)
        )

    def _advance(self) -> None:
        """Commits the entries that a majority has, if the last of them is of this term."""
        state = self._state
        end_index = self._majority_end_index()
        if end_index <= state.high_watermark or state.log.term_before(end_index) != state.term:
            return
        committed = state.log.between(state.high_watermark, end_index)
        self._uncommitted_bytes -= sum(entry.size_bytes for entry in committed)
        state.advance_high_watermark(end_index)
        self._begin_read_round()
        self.replication.broadcast()
        if not state.is_voter and state.high_watermark >= state.log.voters.latest_end_index:
            self._leave()

    def _majority_end_index(self) -> int:
        state = self._state
        peers = self.replication.peers
        return majority_reached(
            [
                state.log.durable_end_index if voter == state.me else peers[voter].match_end_index
                for voter in state.voters.keys
            ]
        )

    def _leave(self) -> None:
        """Resigns after the leader's own removal has committed. A chosen successor stands for election at once."""
        successor = choose_successor(self._state.voters, self.replication.peers)
        if successor is not None:
            self._send_timeout_now(successor)
        self.next_role = RoleName.FOLLOWER

    def _has_quorum(self) -> bool:
        """Returns True if a majority has answered within the election time-out, this replica included."""
        state = self._state
        peers = self.replication.peers
        heard_ms = majority_reached(
            [state.now_ms if voter == state.me else peers[voter].last_contact_ms for voter in state.voters.keys]
        )
        return state.now_ms - heard_ms < state.election_timeout_ms

    def _maybe_append_idle_no_op(self) -> None:
        state = self._state
        interval_ms = state.settings.idle_no_op_interval_ms
        is_idle = state.high_watermark == state.log.end_index and self._transfer is None
        # A single voter needs no idle no-op, because it always knows whether it can commit.
        if interval_ms and is_idle and len(state.voters) > 1 and state.now_ms - self._last_append_ms >= interval_ms:
            self._append(((EntryKind.NO_OP, b""),))

    def _begin_read_round(self) -> None:
        if self.has_committed_own_term and self._reads.begin_round(self._state.high_watermark):
            self.replication.broadcast(heartbeat=True, voters_only=True)
            self._confirm_reads()

    def _confirm_reads(self) -> None:
        """Answers the reads whose round a majority has echoed. Starts the next round for reads that came later."""
        state = self._state
        if not len(self._reads):
            return
        peers = self.replication.peers
        round_ = majority_reached(
            [self._reads.round if voter == state.me else peers[voter].read_round for voter in state.voters.keys]
        )
        for read in self._reads.on_confirmed(round_):
            state.answer_read(read.request_id, read.end_index)
        state.deliver()
        if len(self._reads):
            self._begin_read_round()

    def _may_change_voters(self) -> bool:
        """Returns True if a change of the voters may begin. The last change and an entry of this term must have
        committed, and no transfer may be in progress."""
        state = self._state
        is_settled = state.high_watermark >= state.log.voters.latest_end_index
        return is_settled and self.has_committed_own_term and self._transfer is None

    def _advance_voter_change(self) -> None:
        change = self._changes.next_voters(may_change=self._may_change_voters())
        if change is not None:
            self._append_voters(*change)

    def _append_voters(self, request_id: int, voters: VoterSet | None) -> None:
        """Appends the voter set and replies. Does nothing if `voters` is None, because the change was rejected."""
        if voters is not None:
            self._reply_appended(request_id, self._append(((EntryKind.VOTERS, voters.to_bytes()),)))

    def _advance_transfer(self) -> None:
        """Tells the successor to stand for election once it has the whole log. Repeats this with each heartbeat,
        because the message may be lost."""
        if self._transfer is None:
            return
        progress = self.replication.peers.get(self._transfer.target)
        if progress is not None and progress.match_end_index == self._state.log.end_index:
            self._send_timeout_now(self._transfer.target)

    def _send_timeout_now(self, receiver: ReplicaKey) -> None:
        state = self._state
        state.outbox.send(TimeoutNowRequest(sender=state.me, receiver=receiver, term=state.term))
