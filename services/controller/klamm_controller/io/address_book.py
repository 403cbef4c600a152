"""Where the other controllers are reached: as they said themselves last, or else as the voter set says.

A controller says where it is with everything it sends, and names the leader's address with the leader; so one that has
moved is found as soon as it reaches anybody, and an observer, which no voter set names, can be answered. Those that are
configured by address alone have negative ids here, as Kafka's bootstrap servers have.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import ReplicaKey, Voter

ADDRESSES_MAX = 2_000
"""More than a leader has observers (raft.settings.observers_max)."""
_FIRST_CONTACT_ID = -2


class AddressBook:
    """`contacts` are configured addresses, `voters` tells the set in force."""

    def __init__(self, contacts: Sequence[str], voters: Callable[[], VoterSet]) -> None:
        self._contacts = dict(enumerate_contacts(contacts))
        self._voters = voters
        self._learnt: OrderedDict[ReplicaKey, str] = OrderedDict()

    def learn(self, key: ReplicaKey, address: str) -> None:
        """A replica was said to be there."""
        self._learnt[key] = address
        self._learnt.move_to_end(key)
        if len(self._learnt) > ADDRESSES_MAX:
            self._learnt.popitem(last=False)

    def address(self, key: ReplicaKey) -> str:
        """host:port, or empty when nobody knows."""
        if key.node_id < 0:
            return self._contacts.get(key.node_id, "")
        return self._learnt.get(key) or self._voters().endpoint(key) or ""

    def moved_voters(self) -> list[Voter]:
        """Voters that are elsewhere than the voter set says."""
        voters = self._voters()
        found = (Voter(voter.key, self._learnt.get(voter.key, voter.endpoint)) for voter in voters)
        return [voter for voter in found if voter.endpoint != voters.endpoint(voter.key)]


def enumerate_contacts(contacts: Sequence[str]) -> list[tuple[int, str]]:
    """An id for each address."""
    return [(_FIRST_CONTACT_ID - position, address) for position, address in enumerate(contacts)]
