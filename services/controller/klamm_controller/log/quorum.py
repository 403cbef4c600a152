"""The controllers of a quorum, which of them leads, and how that is changed (KIP-853).

Owns the requests that wait for a change of the voters to commit. It asks the Raft node and takes no part in what the
log says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm_controller.log.quorum_status import QuorumStatus, quorum_status
from klamm_controller.log.voter_requests import VoterRequests
from klamm_controller.raft.events import AddVoter, Event, RemoveVoter, UpdateVoter
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import ReplicaKey, Voter
from klamm_controller.raft.node import RaftNode
from klamm_server.runtime.clock import Clock

InvalidRequestError = EXCEPTIONS[ErrorCode.INVALID_REQUEST]
NotControllerError = EXCEPTIONS[ErrorCode.NOT_CONTROLLER]

NO_LEADER_ID = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerAddress:
    """A voter, and where it is: host:port, or empty when that is not known."""

    node_id: int
    address: str


class Quorum:
    """The quorum as one of its nodes sees it, from the node's beginning to `stop`.

    `node` is the Raft node, `step` gives it an event, `decides` tells whether this node may change anything,
    `request_ids` are shared with all who ask it; `address_of` tells where controllers are."""

    def __init__(
        self,
        *,
        node: Callable[[], RaftNode],
        step: Callable[[Event], object],
        decides: Callable[[], bool],
        requests: VoterRequests,
        request_ids: Iterator[int],
        address_of: Callable[[ReplicaKey], str],
        clock: Clock,
    ) -> None:
        self._node = node
        self._step = step
        self._decides = decides
        self._requests = requests
        self._request_ids = request_ids
        self._address_of = address_of
        self._clock = clock
        self._stopped = False

    @property
    def leader_id(self) -> int:
        """The node.id of the leader, or -1 while there is none."""
        leader = self._leader
        return NO_LEADER_ID if leader is None else leader.node_id

    @property
    def leader_address(self) -> str:
        """Where the leader is (host:port), or empty."""
        leader = self._leader
        return "" if leader is None else self._address_of(leader)

    @property
    def voters(self) -> VoterSet:
        """The set in force."""
        return self._node().voters

    @property
    def votes_alone(self) -> bool:
        """Whether this node decides without asking anybody."""
        return self.voters.keys == (self._node().me,)

    def controllers(self) -> list[ControllerAddress]:
        """The voters, by node.id."""
        keys = sorted(self.voters.keys)
        return [ControllerAddress(node_id=key.node_id, address=self._address_of(key)) for key in keys]

    def status(self) -> QuorumStatus:
        """The replicas that this node leads, and how far they are. Raises NotControllerError."""
        if not self._decides():
            raise NotControllerError
        return quorum_status(self._node(), self._address_of, self._clock.monotonic_ms())

    async def add_voter(self, node_id: int, directory_id: str, address: str) -> None:
        """Makes an observer a voter once it has caught up; returns when that is committed. Without `address`, it is
        where it said itself.

        Raises NotControllerError when it had no effect, RequestTimedOutError when another change is under way, when
        it does not catch up, or when the outcome is not known; DuplicateVoterError, InvalidRequestError."""
        key = ReplicaKey(node_id, directory_id)
        voter = Voter(key, address or self._address_of(key))
        if not voter.endpoint:
            raise InvalidRequestError(f"the address of controller {key} is unknown, expected one in the request")
        await self._change(AddVoter(request_id=next(self._request_ids), voter=voter))

    async def remove_voter(self, node_id: int, directory_id: str) -> None:
        """Takes a voter out of the set, this node too; returns when that is committed. Raises as `add_voter`,
        VoterNotFoundError, InvalidRequestError for the last voter."""
        key = ReplicaKey(node_id, directory_id)
        await self._change(RemoveVoter(request_id=next(self._request_ids), key=key))

    def update_voters(self, moved: Sequence[Voter]) -> None:
        """Writes down where voters are, if this node decides; one at a time, so call again."""
        if moved and self._decides():
            self._step(UpdateVoter(request_id=next(self._request_ids), voter=moved[0]))

    def stop(self) -> None:
        """Ends the requests, because this node receives no more messages from a leader."""
        self._stopped = True
        self._requests.give_up()

    @property
    def _leader(self) -> ReplicaKey | None:
        return None if self._stopped else self._node().leader

    async def _change(self, event: AddVoter | RemoveVoter) -> None:
        if not self._decides():
            raise NotControllerError
        done = self._requests.add(event.request_id)
        self._step(event)
        try:
            await done
        finally:
            self._requests.discard(event.request_id)
