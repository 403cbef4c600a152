"""The addresses of the other controllers: the last address that each announced, or else its address in the voter set.

Every message names the sender's address and the listeners that its clients dial. A message that names the leader also
has the leader's address and listeners. So the others find a controller that has moved as soon as it reaches one of
them. Controllers can also answer an observer, which is in no voter set. Controllers that are configured by address
alone have negative ids here, like Kafka's bootstrap servers.

An announced address belongs to one listener, for the servers that dial this listener. A server that uses another
listener dials the listener of that name (`dialled`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TypeVar

from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import ReplicaKey, Voter
from klamm_server.config.server_config import parse_server
from klamm_server.net.listeners import Listener, between_servers, plain_listeners

ADDRESSES_MAX = 2_000
"""The most addresses that a controller remembers. A leader has fewer observers (raft.settings.observers_max)."""
_FIRST_CONTACT_ID = -2

K = TypeVar("K")
V = TypeVar("V")


class AddressBook:
    """The known addresses of the other controllers.

    `contacts` are the configured addresses. `voters` returns the voter set in force. `own` is the listener by which
    this controller dials other servers."""

    def __init__(self, contacts: Sequence[str], voters: Callable[[], VoterSet], own: Listener) -> None:
        self._own = own
        self._contacts = dict(enumerate_contacts(contacts))
        self._voters = voters
        self._learnt: OrderedDict[ReplicaKey, str] = OrderedDict()
        self._listeners: OrderedDict[str, tuple[Listener, ...]] = OrderedDict()

    def learn(self, key: ReplicaKey, address: str, listeners: Sequence[Listener] = ()) -> None:
        """Remembers the address of a replica and, if there are any, the listeners that its clients dial."""
        _put(self._learnt, key, address)
        if listeners:
            _put(self._listeners, address, tuple(listeners))

    def listeners(self, address: str) -> tuple[Listener, ...]:
        """Returns the listeners that clients dial for the controller at `address` (host:port). If they are unknown,
        returns one plain listener at `address`."""
        return self.announced_listeners(address) or plain_listeners(
            *parse_server("the address of a controller", address)
        )

    def announced_listeners(self, address: str) -> tuple[Listener, ...]:
        """Returns the listeners that the controller at `address` has announced, or an empty tuple."""
        return self._listeners.get(address, ())

    def address(self, key: ReplicaKey) -> str:
        """Returns the host:port of a controller, or empty text if its address is unknown."""
        if key.node_id < 0:
            return self._contacts.get(key.node_id, "")
        return self._learnt.get(key) or self._voters().endpoint(key) or ""

    def dialled(self, key: ReplicaKey) -> str:
        """Returns the host:port that this controller dials to reach a replica, or empty text if it is unknown."""
        address = self.address(key)
        found = between_servers(self.announced_listeners(address), self._own)
        return address if found is None else f"{found.host}:{found.port}"

    def moved_voters(self) -> list[Voter]:
        """Returns the voters whose announced address differs from the one in the voter set."""
        voters = self._voters()
        found = (Voter(voter.key, self._learnt.get(voter.key, voter.endpoint)) for voter in voters)
        return [voter for voter in found if voter.endpoint != voters.endpoint(voter.key)]


def _put(known: OrderedDict[K, V], key: K, value: V) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > ADDRESSES_MAX:
        known.popitem(last=False)


def enumerate_contacts(contacts: Sequence[str]) -> list[tuple[int, str]]:
    """Returns a negative node id for each configured address, as (id, address)."""
    return [(_FIRST_CONTACT_ID - position, address) for position, address in enumerate(contacts)]
