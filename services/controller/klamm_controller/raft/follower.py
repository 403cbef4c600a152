"""The role of a replica that follows a leader or waits for one. Observers always have this role.

A follower appends the leader's entries if they fit (log matching). Otherwise it answers with the position up to which
the logs may agree. It receives snapshots. It stands for election if no leader sends a message within the time-out. A
replica that may not stand asks other nodes for a leader to follow.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm_controller.raft.messages import (
    ANY_DIRECTORY,
    AppendRequest,
    AppendResponse,
    AttachResponse,
    LogEntry,
    ReplicaKey,
    SnapshotChunkRequest,
    SnapshotChunkResponse,
    TimeoutNowRequest,
)
from klamm_controller.raft.snapshot import SnapshotReceiving
from klamm_controller.raft.state import NodeState, RoleName


class Follower:
    """The role of a replica from when it learns a term or its leader until the time-out."""

    name = RoleName.FOLLOWER

    def __init__(self, state: NodeState, known_nodes: Sequence[int]) -> None:
        self.next_role: RoleName | None = None
        self.deadline_ms = state.now_ms + state.random_election_timeout_ms()
        self._state = state
        self._known_nodes = known_nodes
        self._asked = 0
        self._live_until_ms = state.now_ms
        """The time until which the last message of the leader counts as proof that it lives."""
        self._receiving: SnapshotReceiving | None = None
        self._caught_up = False

    @property
    def is_in_step(self) -> bool:
        """True if the follower has a leader and has once had all entries that were committed at that time."""
        return self._state.leader is not None and self._caught_up

    @property
    def has_live_leader(self) -> bool:
        """True if the leader has sent a message within the election time-out."""
        return self._state.leader is not None and self._state.now_ms < self._live_until_ms

    def on_deadline(self) -> None:
        """Starts a pre-vote, because no leader has sent a message within the time-out. A replica that may not stand
        asks another node for the leader."""
        if self._state.may_stand:
            self.next_role = RoleName.PROSPECTIVE
            return
        self._restart_timer()
        self._state.set_leader(None)
        self._ask_somebody()

    def on_vote_granted(self) -> None:
        """Restarts the timer, so that the candidate has time to win (thesis 3.4)."""
        self._restart_timer()

    def on_append(self, request: AppendRequest) -> None:
        """Appends the entries if they fit, otherwise rejects them. The answer leaves only when the acknowledged entries
        are durable."""
        self._hear(request.sender)
        base_index, entries = request.base_index, request.entries
        certain = self._state.high_watermark
        if base_index < certain:
            # The leader's log also has all committed entries. Before the high watermark, this log may only have a
            # snapshot.
            entries = entries[certain - base_index :]
            base_index = certain
        elif not self._fits(request):
            self._reject(request)
            return
        self._take(entries)
        end_index = base_index + len(entries)
        self._caught_up = self._caught_up or end_index >= request.high_watermark
        self._commit(request.high_watermark, end_index)
        self._acknowledge(request, end_index)

    def on_snapshot_chunk(self, request: SnapshotChunkRequest) -> None:
        """Stores the chunk if it is the next one. Answers with the position of the next byte that is missing."""
        self._hear(request.sender)
        if request.snapshot.end_index <= self._state.high_watermark:
            self._receiving = None
            self._acknowledge(request, self._state.high_watermark)
            return
        if self._receiving is None or self._receiving.snapshot != request.snapshot:
            self._receiving = SnapshotReceiving(request.snapshot)
        if self._receiving.accept(request):
            self._state.receive_chunk(request)
            if request.is_last:
                self._receiving = None
                self._acknowledge(request, request.snapshot.end_index)
                return
        self._state.outbox.promise(
            SnapshotChunkResponse(
                sender=self._state.me,
                receiver=request.sender,
                term=self._state.term,
                snapshot=request.snapshot,
                position=self._receiving.position,
                read_round=request.read_round,
            )
        )

    def on_timeout_now(self, request: TimeoutNowRequest) -> None:
        """Becomes a candidate without a pre-vote, because the leader hands the leadership over."""
        if self._state.leader == request.sender and self._state.may_stand:
            self.next_role = RoleName.CANDIDATE

    def on_attach_response(self, response: AttachResponse) -> None:
        """Follows the leader that the response names."""
        if self._state.leader is None and response.leader not in (None, self._state.me):
            assert response.leader is not None
            self._state.ask_to_follow(response.leader)

    def check_invariants(self) -> None:
        """Asserts that the follower is not the leader."""
        assert self._state.leader != self._state.me, self._state.term

    def _hear(self, leader: ReplicaKey) -> None:
        assert self._state.leader in (None, leader), (self._state.term, self._state.leader, leader)
        self._state.set_leader(leader)
        self._live_until_ms = self._state.now_ms + self._state.election_timeout_ms
        self._restart_timer()

    def _restart_timer(self) -> None:
        self.deadline_ms = self._state.now_ms + self._state.random_election_timeout_ms()

    def _fits(self, request: AppendRequest) -> bool:
        """Returns True if this log equals the leader's log before the first entry of the request."""
        return self._state.log.has_position(request.base_index, request.prev_term)

    def _take(self, entries: tuple[LogEntry, ...]) -> None:
        """Appends missing entries. Truncates only entries that contradict the leader's. A late request may end before
        this log does, and must not remove the entries of a later request."""
        log = self._state.log
        for position, entry in enumerate(entries):
            term = log.term_before(entry.index + 1)
            if term == entry.term:
                continue
            if term is not None:
                assert entry.index >= self._state.high_watermark, (entry, self._state.high_watermark)
                log.cut_end(entry.index)
            log.append(entries[position:])
            return

    def _commit(self, leader_high_watermark: int, matching_end_index: int) -> None:
        """Advances the high watermark, at most to `matching_end_index`. After that index, this log may differ from the
        leader's log."""
        end_index = min(leader_high_watermark, matching_end_index)
        if end_index > self._state.high_watermark:
            self._state.advance_high_watermark(end_index)

    def _acknowledge(self, request: AppendRequest | SnapshotChunkRequest, end_index: int) -> None:
        self._answer(request, rejected=False, end_index=end_index, last_term=request.term)

    def _reject(self, request: AppendRequest) -> None:
        end_index, last_term = self._state.log.last_position(request.base_index, request.prev_term)
        self._answer(request, rejected=True, end_index=end_index, last_term=last_term)

    def _answer(
        self, request: AppendRequest | SnapshotChunkRequest, *, rejected: bool, end_index: int, last_term: int
    ) -> None:
        self._state.outbox.promise(
            AppendResponse(
                sender=self._state.me,
                receiver=request.sender,
                term=self._state.term,
                rejected=rejected,
                base_index=request.base_index if isinstance(request, AppendRequest) else request.snapshot.end_index,
                end_index=end_index,
                last_term=last_term,
                read_round=request.read_round,
            )
        )

    def _ask_somebody(self) -> None:
        """Asks one node for the leader, each time another one: first the voters in the log, then the configured
        nodes."""
        state = self._state
        keys = [key for key in state.voters.keys if key != state.me]
        listed = {key.node_id for key in keys}
        keys += [ReplicaKey(node, ANY_DIRECTORY) for node in self._known_nodes if node not in listed]
        keys = [key for key in keys if key.node_id != state.me.node_id]
        if keys:
            self._state.ask_to_follow(keys[self._asked % len(keys)])
            self._asked += 1
