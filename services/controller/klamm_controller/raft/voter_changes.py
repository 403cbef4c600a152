"""The leader's changes of the voter set (KIP-853): one voter at a time, and a new voter only after it has caught up.

A new voter first follows as an observer. Its log must reach the end that the leader's log had at the request. Then the
leader appends the new set, and the replica is a voter. So the quorum never waits for a replica that is far behind. To
remove a voter, the leader appends the set without it. A leader that removes itself leads until that set has committed,
without counting itself. To change a voter's endpoint (KIP-853's UpdateVoter), the leader appends the same set with the
new endpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm.errors import ErrorCode
from klamm_controller.raft.events import AddVoter, RemoveVoter, UpdateVoter
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import Voter
from klamm_controller.raft.replication import Replication
from klamm_controller.raft.state import NodeState


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingAdd:
    """A request to add a voter, which is still catching up."""

    request_id: int
    voter: Voter
    end_index: int
    """The index up to which the new voter's log must match before it is added."""
    deadline_ms: int


class VoterChanges:
    """The leader's change of the voters. There is at most one at a time."""

    def __init__(self, state: NodeState, replication: Replication) -> None:
        self._state = state
        self._replication = replication
        self._pending: PendingAdd | None = None

    def begin_add(self, event: AddVoter, *, may_change: bool) -> None:
        """Starts to wait for the new voter to catch up. Rejects the request with DUPLICATE_VOTER if the node is a voter
        already. Rejects it with REQUEST_TIMED_OUT, which clients retry, if another change is in progress, as in
        Kafka."""
        state = self._state
        key = event.voter.key
        if self._pending is not None or not may_change:
            state.reject(event.request_id, ErrorCode.REQUEST_TIMED_OUT)
        elif any(voter.key.node_id == key.node_id for voter in state.voters):
            state.reject(event.request_id, ErrorCode.DUPLICATE_VOTER)
        else:
            self._pending = PendingAdd(
                request_id=event.request_id,
                voter=event.voter,
                end_index=state.log.end_index,
                deadline_ms=state.now_ms + state.settings.add_voter_timeout_ms,
            )

    def remove(self, event: RemoveVoter, *, may_change: bool) -> VoterSet | None:
        """Returns the voter set to append, or None if the request was rejected. The last voter cannot be removed."""
        state = self._state
        if event.key not in state.voters:
            state.reject(event.request_id, ErrorCode.VOTER_NOT_FOUND)
        elif len(state.voters) == 1:
            state.reject(event.request_id, ErrorCode.INVALID_REQUEST)
        elif self._pending is not None or not may_change:
            state.reject(event.request_id, ErrorCode.REQUEST_TIMED_OUT)
        else:
            return state.voters.without(event.key)
        return None

    def update(self, event: UpdateVoter, *, may_change: bool) -> VoterSet | None:
        """Returns the voter set to append, or None if the request was rejected."""
        state = self._state
        if event.voter.key not in state.voters:
            state.reject(event.request_id, ErrorCode.VOTER_NOT_FOUND)
        elif self._pending is not None or not may_change:
            state.reject(event.request_id, ErrorCode.REQUEST_TIMED_OUT)
        else:
            return state.voters.with_endpoint_of(event.voter)
        return None

    def next_voters(self, *, may_change: bool) -> tuple[int, VoterSet] | None:
        """Returns the request id and the voter set to append, or None until the new voter has caught up."""
        pending = self._pending
        if pending is None or not may_change:
            return None
        progress = self._replication.peers.get(pending.voter.key)
        if progress is None or progress.match_end_index < pending.end_index:
            return None
        self._pending = None
        return pending.request_id, self._state.voters.with_voter(pending.voter)

    def on_deadline(self) -> None:
        """Rejects the pending request with REQUEST_TIMED_OUT if the new voter has not caught up by its deadline."""
        if self._pending is not None and self._state.now_ms >= self._pending.deadline_ms:
            self._state.reject(self._pending.request_id, ErrorCode.REQUEST_TIMED_OUT)
            self._pending = None

    def abandon(self) -> None:
        """Rejects the pending request with NOT_CONTROLLER, because this node no longer leads."""
        if self._pending is not None:
            self._state.reject(self._pending.request_id, ErrorCode.NOT_CONTROLLER)
            self._pending = None
