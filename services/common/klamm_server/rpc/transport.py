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


@dataclass(frozen=True, slots=True)
class Handler:
    """Answers the calls of one method. `answer` is a coroutine function of (request, context), or an async generator
    function if the method streams answers."""

    method: Method
    answer: Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What a listener bears."""

    receive_max_bytes: int
    """The longest request."""
    concurrent_calls_max: int
    """Calls that it works on; one more is answered RESOURCE_EXHAUSTED."""


class Callers(Protocol):
    """Lets callers in at a listener where clients log in."""

    open_paths: frozenset[str]
    """The calls by which one logs in."""

    def may_pass(self, metadata: Iterable[tuple[str, str | bytes]]) -> bool:
        """Whether a call with that metadata may be somebody's: if not, its request need not be read. Handlers ask
        again."""

    async def session(self, context: Any) -> object:
        """Whose call it is. Raises CallFailed(UNAUTHENTICATED)."""


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
    ) -> int:
        """Answers at every address of `bind`, which may be empty, encrypted with `tls`; returns the port (chosen when
        `port` is 0). What the transport answers by itself, but for health, `callers` may ask alone.

        In the context of a handler, `klamm_server.listeners.CAME_BY` is `listener`. What a handler raises reaches the
        caller as `klamm_server.rpc.refusals.failure_of` says. Raises KlammError when an address cannot be bound,
        ConfigError for settings of TLS that this transport cannot keep."""

    async def report_health(self, is_serving: bool) -> None:
        """Sets the answer to health checks."""

    async def stop(self, grace_s: float) -> None:
        """Takes no more calls; those under way have `grace_s` seconds."""


class ServerTransport(Transport, Protocol):
    """What a server needs."""

    def server(self, limits: ServerLimits) -> TransportServer:
        """Made once for each process."""
