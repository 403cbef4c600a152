"""The two roles of an election. A prospective replica asks whether it could win (pre-vote, KIP-996). A candidate asks
for votes.

A prospective replica keeps its term, so a replica that cannot win does not disturb the others. A candidate counts its
own vote and sends its requests only after its term and vote are durable. Otherwise it could crash, forget its vote, and
collect votes in one term for two different logs.
"""

from __future__ import annotations

from klamm_controller.raft.messages import ReplicaKey, VoteRequest, VoteResponse
from klamm_controller.raft.quorum import is_majority
from klamm_controller.raft.state import NodeState, RoleName


class Prospective:
    """The role that asks all voters whether they would vote for this replica."""

    name = RoleName.PROSPECTIVE

    def __init__(self, state: NodeState) -> None:
        self.next_role: RoleName | None = None
        self.deadline_ms = state.now_ms + state.random_election_timeout_ms()
        self._state = state
        self._granted: set[ReplicaKey] = set()
        state.set_leader(None)
        for request in _requests(state, pre_vote=True):
            state.outbox.send(request)
        self._count(state.me)

    def on_deadline(self) -> None:
        """Asks for votes again, because there is no leader yet."""
        self.next_role = RoleName.PROSPECTIVE if self._state.may_stand else RoleName.FOLLOWER

    def on_vote_response(self, response: VoteResponse) -> None:
        """Counts a vote. If the response names a leader, asks the leader to send entries, because it may have forgotten
        a voter that was removed."""
        if response.pre_vote and response.granted:
            self._count(response.sender)
        elif response.leader not in (None, self._state.me):
            assert response.leader is not None
            self._state.ask_to_follow(response.leader)

    def check_invariants(self) -> None:
        """Asserts that the replica knows no leader."""
        assert self._state.leader is None, self._state.leader

    def _count(self, voter: ReplicaKey) -> None:
        self._granted.add(voter)
        if is_majority(self._state.voters.keys, self._granted):
            self.next_role = RoleName.CANDIDATE


class Candidate:
    """The role that asks all voters for their vote in a new term."""

    name = RoleName.CANDIDATE

    def __init__(self, state: NodeState) -> None:
        self.next_role: RoleName | None = None
        self._state = state
        state.vote(state.term + 1, state.me)
        self.deadline_ms = state.now_ms + state.random_election_timeout_ms()
        self._granted: set[ReplicaKey] = set()
        self._own_vote_id = state.outbox.next_id
        """The id of the write that contains the candidate's own vote."""
        for request in _requests(state, pre_vote=False):
            state.outbox.promise(request)

    def on_deadline(self) -> None:
        """Returns to pre-votes after an election that was not won in time.

        If the candidate still waits for its disk, it has not asked for votes yet, and stays a candidate. A series of
        terms without votes would keep other replicas from electing a leader."""
        if self._state.me in self._granted:
            self.next_role = RoleName.PROSPECTIVE
        else:
            self.deadline_ms = self._state.now_ms + self._state.random_election_timeout_ms()

    def on_persisted(self, persist_id: int) -> None:
        """Counts the candidate's own vote once it is on disk."""
        if persist_id >= self._own_vote_id:
            self._count(self._state.me)

    def on_vote_response(self, response: VoteResponse) -> None:
        """Counts the votes of this term."""
        if response.granted and not response.pre_vote:
            self._count(response.sender)

    def check_invariants(self) -> None:
        """Asserts that the candidate voted for itself and knows no leader."""
        assert self._state.voted_for == self._state.me, self._state.voted_for
        assert self._state.leader is None, self._state.leader

    def _count(self, voter: ReplicaKey) -> None:
        self._granted.add(voter)
        if is_majority(self._state.voters.keys, self._granted):
            self.next_role = RoleName.LEADER


def _requests(state: NodeState, *, pre_vote: bool) -> list[VoteRequest]:
    return [
        VoteRequest(
            sender=state.me,
            receiver=voter,
            term=state.term,
            pre_vote=pre_vote,
            end_index=state.log.end_index,
            last_term=state.log.last_term,
        )
        for voter in state.voters.keys
        if voter != state.me
    ]
