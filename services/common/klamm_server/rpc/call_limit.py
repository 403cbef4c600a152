"""Bounds the calls of clients that are in progress in a server, with a fair share for each user.

gRPC bounds the calls of a listener for everybody together, so that one client could keep out all others, and servers
too. So the server counts clients' calls by user. Calls between servers have no bound here, and nor have the calls of a
server that acts for itself behind the gate. gRPC's own bound is twice as large, so that calls of servers always find
room beside clients' calls.

A call counts when its handler begins. gRPC reads the request of a unary call before that, and does not name the client.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Final

from google.protobuf.message import Message

from klamm.rpc.status import CallFailed, Status
from klamm.wire.calls import CallContext
from klamm.wire.service import Method
from klamm_server.runtime.place_shares import PlaceShares
from klamm_server.security.acls.hosts import network_of
from klamm_server.security.gate import host_of
from klamm_server.security.operations import is_between_servers
from klamm_server.security.peer_principals import LOGGED_IN
from klamm_server.security.session import CALLER
from klamm_server.security.users import user_of

SETTING: Final = "max.concurrent.rpcs"
_PEERS_MAX: Final = 8_192
"""The maximum number of connections whose users are cached."""


class CallLimit:
    """The places for the calls of clients to one server, at most `calls_max`."""

    def __init__(self, calls_max: int) -> None:
        self._calls_max = calls_max
        self._places = PlaceShares(calls_max)

    def limited(
        self, method: Method, answer: Callable[[Any, Any], Any], *, knows_servers: bool
    ) -> Callable[[Any, Any], Any]:
        """Returns a servicer's function that takes a place for each call, unless a server makes it. It raises
        CallFailed(RESOURCE_EXHAUSTED) if the user has no place. `knows_servers` is True if a caller without a session
        is another server."""
        if is_between_servers(method.path):
            return answer

        # Not a coroutine and not a generator: those would cost more for each call, and for each message of a stream.
        def call(request: Any, context: CallContext) -> Any:
            if not knows_servers or CALLER.get() is not None:
                self._enter(request, context)
            return answer(request, context)

        return call

    def _enter(self, request: Any, context: CallContext) -> None:
        """Takes a place until the call is done."""
        user = _user(request, context)
        if not self._places.take(user):
            raise CallFailed(
                Status.RESOURCE_EXHAUSTED,
                f"the user has too many calls in progress ({SETTING}={self._calls_max}, which users share): send the"
                " request again later",
            )
        context.add_done_callback(lambda _: self._places.give_back(user))


def _user(request: Any, context: CallContext) -> str:
    """Returns the user of a client's call. Without a session or a login, it is the address, or the one that a broker
    names for its client."""
    caller = CALLER.get()
    if caller is not None:
        return user_of(caller, caller.host)
    logged_in = LOGGED_IN.get()
    if logged_in is not None:
        return logged_in
    kind: Any = type(request)
    if _names_host(kind) and request.client_host:
        return user_of(None, request.client_host.removeprefix("/"))
    return _user_of_peer(context.peer())


@cache
def _names_host(kind: type) -> bool:
    """Returns True if requests of that type have the address of a broker's client."""
    return issubclass(kind, Message) and "client_host" in kind.DESCRIPTOR.fields_by_name


@lru_cache(_PEERS_MAX)
def _user_of_peer(peer: str) -> str:
    return network_of(host_of(peer))
