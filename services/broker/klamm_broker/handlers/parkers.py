"""The users whose requests wait in a purgatory.

Clients share its places by user. Servers have places of their own. Behind the gate, a server that acts for itself has
no session. Without an authorizer, no broker can tell a server from a client. Then a request that is only about internal
topics counts as a server's, because only servers need those in order to work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from klamm.model import INTERNAL_TOPICS
from klamm_broker.purgatory.purgatory import Parker
from klamm_server.security.session import CALLER
from klamm_server.security.users import user_of

ClientHost = Callable[[], str]
"""Returns the address of the client that sent a request. It is called only if the request waits."""


def unknown_host() -> str:
    """Returns the host of a client without an address."""
    return ""


def parker_of(client_host: ClientHost, topics: Iterable[str]) -> Parker:
    """Returns the parker of a request that waits for partitions of these topics."""
    caller = CALLER.get()
    if caller is None:
        return Parker(user_of(None, client_host()), all(topic in INTERNAL_TOPICS for topic in topics))
    return Parker(user_of(caller, caller.host))


def server(client_host: ClientHost) -> Parker:
    """Returns the parker of a request that only servers need to send."""
    return Parker(user_of(CALLER.get(), client_host()), is_server=True)
