"""The users for whom the memory of the state that clients create counts (`klamm_server.runtime.byte_shares`)."""

from __future__ import annotations

from functools import lru_cache

from klamm.acls import ANONYMOUS
from klamm_server.security.acls.hosts import network_of
from klamm_server.security.session import Session

_ADDRESSES_MAX = 8_192
_network_of = lru_cache(_ADDRESSES_MAX)(network_of)


def user_of(caller: Session | None, client_host: str) -> str:
    """Returns the caller's principal. A caller without a login is the user of its address, or of its /64 network of
    IPv6. Without an authorizer, `client_host` is the address."""
    if caller is None:
        return _network_of(client_host)
    return _network_of(caller.host) if caller.principal == ANONYMOUS else caller.principal
