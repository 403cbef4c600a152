"""One replica of the log. Only `step(event, now_ms) -> Effects` changes its state.

This module owns the roles, and the rules that hold in all roles: which messages this replica handles, and what it does
on a newer or an older term (thesis 3.3). Legal transitions:

| from        | to                                                                                          |
|-------------|---------------------------------------------------------------------------------------------|
| FOLLOWER    | FOLLOWER (newer term), PROSPECTIVE (time-out), CANDIDATE (the leader hands over)            |
| PROSPECTIVE | FOLLOWER (leader or newer term), PROSPECTIVE (time-out), CANDIDATE (could win)              |
| CANDIDATE   | FOLLOWER (leader or newer term), PROSPECTIVE (not won in time), LEADER (won)                |
| LEADER      | FOLLOWER (newer term, no answers from a majority, or removed)                               |
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import assert_never

from klamm.errors import ErrorCode
from klamm_controller.raft.candidate import Candidate, Prospective
from klamm_controller.raft.effects import Effects
from klamm_controller.raft.events import (
    AddVoter,
    DeadlinePassed,
    Event,
    LogPersisted,
    Propose,
    Read,
    RemoveVoter,
    Request,
    SnapshotChunkLoaded,
    SnapshotSaved,
    TransferLeadership,
    UpdateVoter,
)
from klamm_controller.raft.follower import Follower
from klamm_controller.raft.leader import Leader
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import (
    AppendRequest,
    AppendResponse,
    AttachRequest,
    AttachResponse,
    Message,
    ReplicaKey,
    SnapshotChunkRequest,
    SnapshotChunkResponse,
    SnapshotId,
    TimeoutNowRequest,
    VoteRequest,
    VoteResponse,
)
from klamm_controller.raft.progress import Progress
from klamm_controller.raft.raft_log import StoredState
from klamm_controller.raft.settings import RaftSettings
from klamm_controller.raft.state import NodeState, RoleName
from klamm_controller.raft.voting import answer_pre_vote, answer_vote, refuse_stale_vote

Role = Follower | Prospective | Candidate | Leader

LEGAL_TRANSITIONS: dict[RoleName, frozenset[RoleName]] = {
    RoleName.FOLLOWER: frozenset({RoleName.FOLLOWER, RoleName.PROSPECTIVE, RoleName.CANDIDATE}),
    RoleName.PROSPECTIVE: frozenset({RoleName.FOLLOWER, RoleName.PROSPECTIVE, RoleName.CANDIDATE}),
    RoleName.CANDIDATE: frozenset({RoleName.FOLLOWER, RoleName.PROSPECTIVE, RoleName.LEADER}),
    RoleName.LEADER: frozenset({RoleName.FOLLOWER}),
}


class RaftNode:
    """One replica, from its start to its crash. The package's docstring lists the caller's duties."""

    def __init__(
        self,
        me: ReplicaKey,
        stored: StoredState,
        settings: RaftSettings,
        rng: random.Random,
        *,
        now_ms: int,
        known_nodes: Sequence[int] = (),
    ) -> None:
        """`known_nodes` are the ids of nodes that this replica asks for the leader, besides the voters
        (`messages.ANY_DIRECTORY`)."""
        settings.validate()
        self._state = NodeState(me, stored, settings, rng)
        self._state.now_ms = now_ms
        self._known_nodes = tuple(known_nodes)
        self._role: Role = Follower(self._state, self._known_nodes)

    @property
    def me(self) -> ReplicaKey:
        """This replica's id and directory."""
        return self._state.me

    @property
    def role(self) -> RoleName:
        """The current role."""
        return self._role.name

    @property
    def term(self) -> int:
        """The newest term that this replica has seen."""
        return self._state.term

    @property
    def leader(self) -> ReplicaKey | None:
        """The leader of the current term, or None if this replica does not know it."""
        return self._state.leader

    @property
    def follows_in_step(self) -> bool:
        """True if this replica follows a leader and has once had all entries that were committed at that time."""
        return isinstance(self._role, Follower) and self._role.is_in_step

    @property
    def voters(self) -> VoterSet:
        """The voter set in force."""
        return self._state.voters

    @property
    def log_start_index(self) -> int:
        """The index of the first entry that is still in the log."""
        return self._state.log.start_index

    @property
    def log_end_index(self) -> int:
        """The index after the last entry of the log."""
        return self._state.log.end_index

    @property
    def high_watermark(self) -> int:
        """The index after the last entry that this replica knows to be committed."""
        return self._state.high_watermark

    @property
    def delivered_end_index(self) -> int:
        """The index after the last entry that was delivered as committed."""
        return self._state.delivered_end_index

    @property
    def snapshot(self) -> SnapshotId:
        """The newest snapshot in the store."""
        return self._state.log.snapshot

    @property
    def election_timeout_ms(self) -> int:
        """The election time-out in force, in milliseconds: the setting, or more after false alarms (patience.py)."""
        return self._state.election_timeout_ms

    @property
    def is_active(self) -> bool:
        """True while the node leads and has committed an entry of its term. The delivered entries then contain all
        entries that any earlier leader acknowledged."""
        return isinstance(self._role, Leader) and self._role.has_committed_own_term

    @property
    def replicas(self) -> dict[ReplicaKey, Progress]:
        """The leader's progress for each other replica, for DescribeQuorum. Empty if this node does not lead. Callers
        must not change it."""
        return self._role.replication.peers if isinstance(self._role, Leader) else {}

    def snapshot_at(self, end_index: int) -> tuple[SnapshotId, VoterSet]:
        """Returns the id of a snapshot of the state after the delivered entries below `end_index`, and the voters to
        store with it."""
        assert self.snapshot.end_index <= end_index <= self.delivered_end_index, end_index
        term = self._state.log.term_before(end_index)
        assert term is not None, end_index
        return SnapshotId(end_index=end_index, term=term), self._state.log.voters.at(end_index)

    def next_deadline_ms(self) -> int:
        """Returns the time at which to step DeadlinePassed, on the clock of `now_ms`."""
        return self._role.deadline_ms

    def step(self, event: Event, now_ms: int) -> Effects:
        """Handles one event and returns its effects. `now_ms` must be monotonic."""
        state = self._state
        assert now_ms >= state.now_ms, (now_ms, state.now_ms)
        state.now_ms = now_ms
        match event:
            case LogPersisted():
                self._on_persisted(event.persist_id)
            case DeadlinePassed():
                if now_ms >= self._role.deadline_ms:
                    self._role.on_deadline()
            case SnapshotSaved():
                state.save_snapshot(event.snapshot)
            case SnapshotChunkLoaded():
                if isinstance(self._role, Leader):
                    self._role.on_chunk_loaded(event)
            case Propose() | Read() | AddVoter() | RemoveVoter() | UpdateVoter() | TransferLeadership():
                self._on_request(event)
            case _:
                self._on_message(event)
        while self._role.next_role is not None:
            self._become(self._role.next_role)
        return state.outbox.collect()

    def check_invariants(self) -> None:
        """Checks the invariants of the node, its state and its role; cheap enough for every step."""
        self._state.check_invariants()
        self._role.check_invariants()

    def _on_persisted(self, persist_id: int) -> None:
        self._state.on_persisted(persist_id)
        match self._role:
            case Leader():
                self._role.on_persisted()
            case Candidate():
                self._role.on_persisted(persist_id)
            case Follower() | Prospective():
                pass

    def _on_request(self, event: Request) -> None:
        role = self._role
        if not isinstance(role, Leader):
            if not isinstance(event, TransferLeadership):
                self._state.reject(event.request_id, ErrorCode.NOT_CONTROLLER)
            return
        match event:
            case Propose():
                role.on_propose(event)
            case Read():
                role.on_read(event)
            case AddVoter():
                role.on_add_voter(event)
            case RemoveVoter():
                role.on_remove_voter(event)
            case UpdateVoter():
                role.on_update_voter(event)
            case TransferLeadership():
                role.on_transfer(event)
            case _:
                assert_never(event)

    def _on_message(self, message: Message) -> None:
        if not self._is_for_me(message):
            return
        if isinstance(message, VoteRequest) and message.pre_vote:
            has_live_leader = isinstance(self._role, Leader) or (
                isinstance(self._role, Follower) and self._role.has_live_leader
            )
            answer_pre_vote(self._state, message, has_live_leader=has_live_leader)
        elif message.term < self._state.term:
            self._on_old_term(message)
        else:
            if message.term > self._state.term:
                self._adopt_term(message.term)
            self._on_current_term(message)

    def _is_for_me(self, message: Message) -> bool:
        """Returns True if this replica handles the message. A message to another directory of this node is for a former
        replica. Any replica answers an AttachRequest."""
        return message.receiver == self.me or isinstance(message, AttachRequest)

    def _on_old_term(self, message: Message) -> None:
        """Handles a message of an older term. Answers leaders and candidates, so that they learn of the current term,
        and every AttachRequest. A refused pre-vote may name the leader of an older term. Drops all other messages."""
        if isinstance(message, AppendRequest | SnapshotChunkRequest):
            self._state.on_false_alarm()
        match message:
            case VoteRequest():
                refuse_stale_vote(self._state, message)
            case AppendRequest() | SnapshotChunkRequest():
                self._refuse_stale_leader(message)
            case AttachRequest():
                self._answer_attach(message)
            case VoteResponse(pre_vote=True, granted=False) if isinstance(self._role, Prospective):
                # A leader sends nothing to a voter that it removed, so it never gets that voter's newer term.
                self._role.on_vote_response(message)
            case _:
                pass

    def _on_current_term(self, message: Message) -> None:
        match message:
            case AppendRequest():
                self._follow(message.sender).on_append(message)
            case SnapshotChunkRequest():
                self._follow(message.sender).on_snapshot_chunk(message)
            case VoteRequest():
                if answer_vote(self._state, message) and isinstance(self._role, Follower):
                    self._role.on_vote_granted()
            case AttachRequest():
                self._answer_attach(message)
            case _:
                self._on_role_message(message)

    def _on_role_message(
        self,
        message: AppendResponse | SnapshotChunkResponse | VoteResponse | TimeoutNowRequest | AttachResponse,
    ) -> None:
        """Handles a message that only one role expects. Other roles drop it, because it comes too late."""
        match self._role, message:
            case Leader() as leader, AppendResponse():
                leader.on_append_response(message)
            case Leader() as leader, SnapshotChunkResponse():
                leader.on_snapshot_chunk_response(message)
            case (Prospective() | Candidate()) as candidate, VoteResponse():
                candidate.on_vote_response(message)
            case Follower() as follower, TimeoutNowRequest():
                follower.on_timeout_now(message)
            case Follower() as follower, AttachResponse():
                follower.on_attach_response(message)
            case Follower(), AppendResponse():
                # This node led this term and resigned for lack of answers. A replica answers after all.
                self._state.on_false_alarm()
            case _:
                pass

    def _answer_attach(self, request: AttachRequest) -> None:
        if isinstance(self._role, Leader):
            self._role.on_attach(request)
            return
        state = self._state
        state.outbox.send(
            AttachResponse(sender=state.me, receiver=request.sender, term=state.term, leader=state.leader)
        )

    def _refuse_stale_leader(self, request: AppendRequest | SnapshotChunkRequest) -> None:
        """Answers a leader of an older term with the current term. The answer acknowledges nothing."""
        state = self._state
        state.outbox.promise(
            AppendResponse(
                sender=state.me,
                receiver=request.sender,
                term=state.term,
                rejected=True,
                base_index=0,
                end_index=0,
                last_term=0,
                read_round=0,
            )
        )

    def _follow(self, leader: ReplicaKey) -> Follower:
        """Becomes a follower if necessary, and returns the follower, which handles the request of a leader of the
        current term."""
        assert not isinstance(self._role, Leader), f"{leader} and {self.me} both lead in term {self.term}"
        if isinstance(self._role, Prospective):
            self._state.on_false_alarm()
        if not isinstance(self._role, Follower):
            self._become(RoleName.FOLLOWER)
        assert isinstance(self._role, Follower), self._role
        return self._role

    def _adopt_term(self, term: int) -> None:
        if isinstance(self._role, Leader) and not self._role.is_handing_over:
            self._state.on_false_alarm()  # the others wrongly took this leader for dead
        self._become(RoleName.FOLLOWER)
        self._state.adopt_term(term)

    def _become(self, role: RoleName) -> None:
        assert role in LEGAL_TRANSITIONS[self.role], (self.role, role)
        if isinstance(self._role, Leader):
            self._role.resign()
            self._state.set_leader(None)
        match role:
            case RoleName.FOLLOWER:
                self._role = Follower(self._state, self._known_nodes)
            case RoleName.PROSPECTIVE:
                self._role = Prospective(self._state)
            case RoleName.CANDIDATE:
                self._role = Candidate(self._state)
            case RoleName.LEADER:
                self._role = Leader(self._state)
            case _:
                assert_never(role)
