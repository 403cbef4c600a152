"""Known Raft mistakes, planted in the core to prove that the simulation would see them. Only tests ever do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klamm_controller.raft import node as node_module
from klamm_controller.raft.effects import HardState, Outbox
from klamm_controller.raft.events import Read
from klamm_controller.raft.follower import Follower
from klamm_controller.raft.leader import Leader
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import (
    AppendRequest,
    AppendResponse,
    LogEntry,
    Message,
    ReplicaKey,
    SnapshotId,
    VoteRequest,
    VoteResponse,
)
from klamm_controller.raft.node import RaftNode
from klamm_controller.raft.quorum import majority_reached
from klamm_controller.raft.raft_log import RaftLog
from klamm_controller.raft.replication import Replication
from klamm_controller.raft.state import NodeState
from klamm_controller.raft.voting import answer_pre_vote, answer_vote
from tests.sim.kit.mutation import Mutation
from tests.sim.raftsim.cluster import Cluster


def _forget_vote(self: NodeState, term: int, voted_for: Any) -> None:
    self.term, self.voted_for = term, voted_for
    self.outbox.write_hard_state(HardState(term=term, voted_for=None))


def _vote_again(state: NodeState, request: VoteRequest) -> bool:
    state.voted_for = None
    return answer_vote(state, request)


def _ignore_live_leader(state: NodeState, request: VoteRequest, *, has_live_leader: bool) -> None:
    answer_pre_vote(state, request, has_live_leader=False)


def _advance_any_term(self: Leader) -> None:
    state = self._state
    end_index = self._majority_end_index()
    if end_index > state.high_watermark:
        self._uncommitted_bytes -= sum(e.size_bytes for e in state.log.between(state.high_watermark, end_index))
        state.advance_high_watermark(end_index)
        self.replication.broadcast()


def _fits_whenever_long_enough(self: Follower, request: AppendRequest) -> bool:
    return request.base_index <= self._state.log.end_index


def _take_and_cut(self: Follower, entries: tuple[LogEntry, ...]) -> None:
    log = self._state.log
    if entries:
        if entries[0].index < log.end_index:
            log.cut_end(entries[0].index)
        log.append(entries)


def _commit_all_there_is(self: Follower, leader_high_watermark: int, matching_end_index: int) -> None:
    end_index = min(leader_high_watermark, self._state.log.end_index)
    if end_index > self._state.high_watermark:
        self._state.advance_high_watermark(end_index)


def _install_over_anything(self: RaftLog, snapshot: SnapshotId, voters: VoterSet) -> None:
    if self.end_index < snapshot.end_index:
        _install(self, snapshot, voters)
        return
    del self._entries[: snapshot.end_index - self.start_index]
    self.snapshot, self.start_index, self._start_term = snapshot, snapshot.end_index, snapshot.term
    self._outbox.cut_log_start(snapshot.end_index)


_install = RaftLog.install


def _read_at_once(self: Leader, event: Read) -> None:
    self._state.answer_read(event.request_id, self._state.high_watermark)
    self._state.deliver()


def _majority_of_all_replicas(self: Leader) -> int:
    ends = [progress.match_end_index for progress in self.replication.peers.values()]
    return majority_reached([self._state.log.durable_end_index, *ends])


def _majority_with_unsynced_self(self: Leader) -> int:
    state = self._state
    peers = self.replication.peers
    return majority_reached(
        [state.log.end_index if voter == state.me else peers[voter].match_end_index for voter in state.voters.keys]
    )


def _believe_old_responses(self: RaftNode, message: Message) -> None:
    if isinstance(message, AppendResponse | VoteResponse):
        self._on_current_term(message)
    else:
        _on_old_term(self, message)


_on_old_term = RaftNode._on_old_term


def _accept_what_was_sent(self: Replication, response: AppendResponse) -> None:
    self.on_accepted(response.sender, response.base_index)


def _same_key(self: Cluster, old: ReplicaKey) -> ReplicaKey:
    return old


def _always(value: bool) -> Callable[..., bool]:
    return lambda *args, **kwargs: value


MUTATIONS: dict[str, Mutation] = {
    "vote-not-persisted": Mutation(
        what="the term is stored, the vote in it is not",
        known_seed=0,
        changes=((NodeState, "_set_hard_state", _forget_vote),),
    ),
    "vote-twice": Mutation(
        what="a voter votes for the candidate that asks last in a term",
        known_seed=4,
        changes=((node_module, "answer_vote", _vote_again),),
    ),
    "vote-for-shorter-log": Mutation(
        what="a candidate's log is not compared",
        known_seed=7,
        changes=((RaftLog, "is_behind", _always(True)),),
    ),
    "pre-vote-against-live-leader": Mutation(
        what="a pre-vote is granted although a leader was just heard",
        known_seed=5,
        changes=((node_module, "answer_pre_vote", _ignore_live_leader),),
    ),
    "commit-old-term-by-count": Mutation(
        what="a leader commits entries of earlier terms by counting replicas (Figure 8 of the paper)",
        known_seed=1,
        changes=((Leader, "_advance", _advance_any_term),),
    ),
    "no-prev-entry-check": Mutation(
        what="a follower takes entries without looking at the one before them",
        known_seed=12,
        changes=((Follower, "_fits", _fits_whenever_long_enough),),
    ),
    "cut-without-conflict": Mutation(
        what="a follower cuts its log at every append, conflict or not, and so entries that are committed",
        known_seed=1,
        changes=((Follower, "_take", _take_and_cut),),
    ),
    "commit-beyond-match": Mutation(
        what="a follower believes the high watermark beyond the entries that were matched",
        known_seed=7,
        changes=((Follower, "_commit", _commit_all_there_is),),
    ),
    "ack-before-fsync": Mutation(
        what="votes and acknowledgements leave before the write is durable",
        known_seed=0,
        changes=((Outbox, "promise", Outbox.send),),
    ),
    "leader-counts-unsynced-self": Mutation(
        what="a leader counts its own entries before they are durable",
        known_seed=0,
        changes=((Leader, "_majority_end_index", _majority_with_unsynced_self),),
    ),
    "write-of-cut-entries-counts": Mutation(
        what="the end of a write makes entries durable that were replaced while it was under way",
        known_seed=1,
        changes=((RaftLog, "_forget_durable", _always(True)),),
    ),
    "rejection-taken-for-success": Mutation(
        what="a leader takes a rejection for an acknowledgement",
        known_seed=0,
        changes=((Replication, "on_rejected", _accept_what_was_sent),),
    ),
    "response-of-old-term-believed": Mutation(
        what="responses to an earlier term's requests are counted",
        known_seed=632,
        changes=((RaftNode, "_on_old_term", _believe_old_responses),),
    ),
    "read-without-quorum": Mutation(
        what="a leader answers reads without asking whether it still leads",
        known_seed=1,
        changes=((Leader, "on_read", _read_at_once),),
    ),
    "read-before-own-term-commits": Mutation(
        what="a new leader answers reads, and changes voters, before an entry of its term is committed",
        known_seed=5,
        changes=((Leader, "has_committed_own_term", property(_always(True))),),
    ),
    "snapshot-keeps-any-suffix": Mutation(
        what="a snapshot is installed under entries that do not follow from it",
        known_seed=80,
        changes=((RaftLog, "install", _install_over_anything),),
    ),
    "two-voter-changes-at-once": Mutation(
        what="a leader begins a change of voters while another is not committed",
        known_seed=8,
        changes=((Leader, "_may_change_voters", _always(True)),),
    ),
    "directory-id-kept": Mutation(
        what="a voter that lost its disk is the same voter again, and may vote twice in a term",
        known_seed=3,
        changes=((Cluster, "_new_key", _same_key),),
    ),
    "removed-voter-counts": Mutation(
        what="removed voters and observers count toward commit",
        known_seed=0,
        changes=((Leader, "_majority_end_index", _majority_of_all_replicas),),
    ),
}
