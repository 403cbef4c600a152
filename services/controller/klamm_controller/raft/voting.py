"""The voter's side of elections: which candidate gets the vote, by the same rule in every role.

A vote is refused to a log that is less complete than one's own (thesis 3.6.1), to a second candidate of the term, and
once a leader of the term is known. A pre-vote (KIP-996) is refused as well by a leader, which check-quorum keeps
honest, and by a replica that heard from a leader within the election time-out: so neither a replica that comes back
from a partition nor one that was removed can unseat a leader that works. A pre-vote is a question: it changes nothing
here, whatever its term.

Anybody who is asked may vote, listed or not: the asked one may not have seen yet that it was made a voter (thesis
4.2.2).
"""

from __future__ import annotations

from klamm_controller.raft.messages import VoteRequest, VoteResponse
from klamm_controller.raft.state import NodeState


def answer_pre_vote(state: NodeState, request: VoteRequest, *, has_live_leader: bool) -> None:
    """Answers at once: it binds nobody."""
    granted = (
        request.term >= state.term and not has_live_leader and state.log.is_behind(request.end_index, request.last_term)
    )
    # Answer in the term of the request. A voter that is a term behind may grant its vote too, and the candidate would
    # ignore an answer in the voter's older term.
    state.outbox.send(_response(state, request, granted, term=request.term if granted else state.term))


def answer_vote(state: NodeState, request: VoteRequest) -> bool:
    """Votes in the current term, if it may; the answer leaves when the vote is durable. Returns whether it did."""
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
    """The candidate learns that its term is over."""
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
