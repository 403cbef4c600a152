"""Tells the controllers of a quorum and its leader, and changes the voters (KIP-853).

This module owns the requests that wait for a change of the voters to commit. It reads the Raft node and sends it
events, and does not touch the entries of the log.
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
    """A voter and its address, as host:port. The address is empty if it is unknown."""

    node_id: int
    address: str


class Quorum:
    """The quorum as one of its nodes sees it, until `stop`.

    `node` returns the Raft node, and `step` passes an event to it. `decides` returns True while this node may change
    metadata. The log and the quorum draw the ids of their requests from `request_ids`. `address_of` returns the address
    of a controller."""

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
        """The address of the leader as host:port, or empty text if it is unknown."""
        leader = self._leader
        return "" if leader is None else self._address_of(leader)

    @property
    def voters(self) -> VoterSet:
        """The voter set in force."""
        return self._node().voters

    @property
    def votes_alone(self) -> bool:
        """True if this node is the only voter."""
        return self.voters.keys == (self._node().me,)

    def controllers(self) -> list[ControllerAddress]:
        """Returns the voters and their addresses, ordered by node.id."""
        keys = sorted(self.voters.keys)
        return [ControllerAddress(node_id=key.node_id, address=self._address_of(key)) for key in keys]

    def status(self) -> QuorumStatus:
        """Returns the status of all replicas that this node leads. Raises NotControllerError if it does not lead."""
        if not self._decides():
            raise NotControllerError
        return quorum_status(self._node(), self._address_of, self._clock.monotonic_ms())

    async def add_voter(self, node_id: int, directory_id: str, address: str) -> None:
        """Makes an observer a voter once it has caught up. Returns when the change has committed. If `address` is
        empty, uses the address that the observer announced.

        Raises NotControllerError if the request had no effect. Raises RequestTimedOutError if another change is in
        progress, the observer does not catch up, or the outcome is unknown. Raises DuplicateVoterError or
        InvalidRequestError for an invalid request."""
        key = ReplicaKey(node_id, directory_id)
        voter = Voter(key, address or self._address_of(key))
        if not voter.endpoint:
            raise InvalidRequestError(f"the address of controller {key} is unknown, expected one in the request")
        await self._change(AddVoter(request_id=next(self._request_ids), voter=voter))

    async def remove_voter(self, node_id: int, directory_id: str) -> None:
        """Removes a voter from the set, which may be this node. Returns when the change has committed. Raises the same
        errors as `add_voter`, VoterNotFoundError, and InvalidRequestError for the last voter."""
        key = ReplicaKey(node_id, directory_id)
        await self._change(RemoveVoter(request_id=next(self._request_ids), key=key))

    def update_voters(self, moved: Sequence[Voter]) -> None:
        """Appends the new address of the first voter in `moved` to the log, if this node decides. Call it again for the
        other voters."""
        if moved and self._decides():
            self._step(UpdateVoter(request_id=next(self._request_ids), voter=moved[0]))

    def stop(self) -> None:
        """Fails the waiting requests, because this node receives no more messages from a leader."""
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
