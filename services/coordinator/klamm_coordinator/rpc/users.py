"""The users for whom the memory of groups and transactional ids counts."""

from __future__ import annotations

from functools import lru_cache

from klamm.acls import ANONYMOUS
from klamm.wire.calls import CallContext
from klamm_coordinator.rpc.hosts import host_of
from klamm_server.security.acls.hosts import network_of
from klamm_server.security.session import CALLER

_ADDRESSES_MAX = 8_192
_network_of = lru_cache(_ADDRESSES_MAX)(network_of)


def user_of(context: CallContext, client_host: str) -> str:
    """Returns the caller's principal. A caller without a login is the user of its address, or of its /64 network of
    IPv6.

    `client_host` is the address that a broker names for its client, as in "/10.0.0.1", or empty."""
    caller = CALLER.get()
    if caller is None:
        return _network_of((client_host or host_of(context.peer())).removeprefix("/"))
    return _network_of(caller.host) if caller.principal == ANONYMOUS else caller.principal
