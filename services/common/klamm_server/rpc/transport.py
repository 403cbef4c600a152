"""The transport of calls to and from a server. Another transport can replace gRPC."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from klamm.rpc.transport import Transport
from klamm.wire.service import Method
from klamm_server.security.server_tls import ServerTls

WANTS_LOGIN: Final = (
    "a client of this listener logs in first (security.protocol=SASL_PLAINTEXT or SASL_SSL), and again when its session"
    " is over"
)
"""The text for a client that has not logged in, with UNAUTHENTICATED."""


Metadata = Iterable[tuple[str, str | bytes]]


@dataclass(frozen=True, slots=True)
class Handler:
    """Answers the calls of one method. `answer` is a coroutine function of (request, context), or an async generator
    function if the method streams answers."""

    method: Method
    answer: Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """The limits of a listener."""

    receive_max_bytes: int
    """The maximum size of a request, in bytes."""
    concurrent_calls_max: int
    """The maximum number of calls in progress. A further call gets RESOURCE_EXHAUSTED."""
    connections_max: int
    """The maximum number of connections at each address. Further connections are closed."""


class Callers(Protocol):
    """Checks the callers at a listener where clients log in."""

    open_paths: frozenset[str]
    """The paths of the calls with which a client logs in. Their requests are in the metadata, so the transport reads
    nothing else and passes None to the handlers."""

    def has_session(self, metadata: Metadata) -> bool:
        """Returns whether a call with that metadata names a session. Handlers check whether it is the caller's."""

    def has_token(self, metadata: Metadata) -> bool:
        """Returns whether a call with that metadata may log in by a token, of which nothing is known yet. If it has
        neither a session nor a token, its request is not read."""

    async def session(self, context: Any) -> object:
        """Returns the session of a call, after a login by its token if necessary. Raises
        CallFailed(UNAUTHENTICATED)."""


class TransportServer(Protocol):
    """The listeners of one server."""

    async def listen(
        self,
        bind: str,
        port: int,
        listener: str,
        handlers: Sequence[Handler],
        tls: ServerTls | None = None,
        callers: Callers | None = None,
        refusal: Callable[[str, str], str | None] | None = None,
    ) -> int:
        """Serves calls at every address of `bind`, which may be empty, with encryption if there is `tls`. Returns the
        port, which is selected if `port` is 0. Only `callers` may use the transport's own services, except health.

        A call without a handler ends with UNIMPLEMENTED and the text that `refusal` returns for its path and the
        listener, or with the transport's own text for None.

        In the context of a handler, `klamm_server.net.listeners.CAME_BY` is `listener`. The exception of a handler
        reaches the caller as `klamm_server.rpc.refusals.failure_of` returns it. Raises KlammError if an address cannot
        be bound, and ConfigError for TLS settings that this transport does not support."""

    async def report_health(self, is_serving: bool) -> None:
        """Sets the answer to health checks."""

    async def stop(self, grace_s: float) -> None:
        """Stops accepting calls. Calls under way have `grace_s` seconds to end."""


class ServerTransport(Transport, Protocol):
    """The transport that servers need: clients' channels, and listeners."""

    def server(self, limits: ServerLimits) -> TransportServer:
        """Makes the server of the process. Call this once."""
