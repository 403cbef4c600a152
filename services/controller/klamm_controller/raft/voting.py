"""How a voter answers candidates. The rules are the same in every role.

A voter refuses its vote to a candidate with a less complete log than its own (thesis 3.6.1). It also refuses a second
candidate of a term, and every candidate once it knows the term's leader. A leader also refuses every pre-vote
(KIP-996), and so does a follower that received a message from its leader within the election time-out. A leader without
a majority resigns (check-quorum), so this does not block elections. So a replica that returns from a network partition,
or that was removed, cannot replace a working leader. A pre-vote never changes the voter's state, whatever its term.

A replica votes even if its own log does not list it as a voter. It may lack the entry that added it (thesis 4.2.2).
"""

from __future__ import annotations

from klamm_controller.raft.messages import VoteRequest, VoteResponse
from klamm_controller.raft.state import NodeState


def answer_pre_vote(state: NodeState, request: VoteRequest, *, has_live_leader: bool) -> None:
    """Answers a pre-vote at once, without a write, because the answer does not bind the voter."""
    granted = (
        request.term >= state.term and not has_live_leader and state.log.is_behind(request.end_index, request.last_term)
    )
    # Answer in the term of the request. A voter that is a term behind may grant its vote too, and the candidate would
    # ignore an answer in the voter's older term.
    state.outbox.send(_response(state, request, granted, term=request.term if granted else state.term))


def answer_vote(state: NodeState, request: VoteRequest) -> bool:
    """Votes in the current term if the rules allow it. The answer leaves when the vote is durable. Returns True if the
    vote was granted."""
    assert request.term == state.term, (request.term, state.term)
    granted = (
        state.voted_for in (None, request.sender)
        and state.leader is None
        and state.log.is_behind(request.end_index, request.last_term)
    )
    if granted and state.voted_for is None:
        state.vote(request.term, request.sender)
    state.outbox.promise(_response(state, request, granted, term=state.term))
    return granted


def refuse_stale_vote(state: NodeState, request: VoteRequest) -> None:
    """Refuses a vote in an older term, so that the candidate learns of the current term."""
    state.outbox.send(_response(state, request, granted=False, term=state.term))


def _response(state: NodeState, request: VoteRequest, granted: bool, term: int) -> VoteResponse:
    return VoteResponse(
        sender=state.me,
        receiver=request.sender,
        term=term,
        pre_vote=request.pre_vote,
        granted=granted,
        leader=None if granted else state.leader,
    )
