"""The user for whom the memory of a request counts."""

from __future__ import annotations

from klamm.wire.calls import CallContext
from klamm_coordinator.rpc.hosts import host_of
from klamm_server.security import users
from klamm_server.security.session import CALLER


def user_of(context: CallContext, client_host: str) -> str:
    """Returns the user that makes the call. `client_host` is the address that a broker names for its client, as in
    "/10.0.0.1", or empty."""
    return users.user_of(CALLER.get(), (client_host or host_of(context.peer())).removeprefix("/"))
