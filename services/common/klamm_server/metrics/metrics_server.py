"""The HTTP endpoint of `prometheus.py`: `/metrics` of this process, and nothing else.

The endpoint has its own thread and event loop, for two reasons. It still answers while the process's event loop is
stuck. A scrape, which is slow with many partitions, delays no request of a client. Each connection serves one request.
The number of connections, the bytes of a request, and the time for either are bounded. If all connections are in use, a
new one replaces the oldest one that has no answer yet, or else the oldest.
"""

from __future__ import annotations

import asyncio
import io
import logging
import threading
from http import HTTPStatus
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit

from prometheus_client import make_wsgi_app

from klamm.errors import KlammError
from klamm_server.metrics.prometheus import registry
from klamm_server.net.bound_sockets import bound_sockets
from klamm_server.net.grpc_refusal import GrpcRefusal
from klamm_server.net.wrong_protocol import FIRST_BYTES, ClientProtocol, WrongProtocolLog, recognised

log = logging.getLogger(__name__)

BACKLOG: Final = 128
"""The number of connections that may wait to be accepted."""
CONNECTIONS_MAX: Final = 32
REQUEST_MAX_BYTES: Final = 16_384
REQUEST_TIMEOUT_S: Final = 10.0
"""The time that a request may take to arrive."""
ANSWER_TIMEOUT_S: Final = 30.0
"""The time for a client to take its answer."""

_PATH: Final = "/metrics"
_END_OF_HEAD: Final = b"\r\n\r\n"
_ADVICE: Final = "this is a metrics port of Klamm, for Prometheus (GET /metrics); clients dial the server's listeners"


class MetricsServer:
    """Serves the metrics until it is closed. With `port` 0 the system selects a port. `host` has the format of
    `bound_sockets`."""

    def __init__(self, host: str, port: int) -> None:
        """Raises KlammError when one of the addresses cannot be bound."""
        try:
            self._sockets = bound_sockets(host, port)
            for socket in self._sockets:
                socket.listen(BACKLOG)
        except (KlammError, OSError) as error:
            raise KlammError(f"metrics.port={port}: {error}") from error
        self.port: int = self._sockets[0].getsockname()[1]
        self._app = make_wsgi_app(registry())
        self._wrong_protocols = WrongProtocolLog(log, f"the metrics port {self.port}", lambda: int(monotonic() * 1000))
        self._connections: dict[_Connection, None] = {}
        """The connections in the order they came."""
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()
        log.info("metrics on host=%s port=%d", host, self.port)

    def close(self) -> None:
        """Stops listening and ends all connections."""
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    # These methods run in the endpoint's thread

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        servers = [
            await self._loop.create_server(lambda: _Connection(self), sock=socket, backlog=BACKLOG)
            for socket in self._sockets
        ]
        await self._stopped.wait()
        for server in servers:
            server.close()
        for connection in list(self._connections):
            connection.end()
        # The connections' callbacks run in the loop's next turn.
        await asyncio.sleep(0)

    def on_connected(self, connection: _Connection) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            waited_for = (other for other in self._connections if not other.is_answered)
            gone = next(waited_for, next(iter(self._connections)))
            del self._connections[gone]
            gone.end()
        self._connections[connection] = None

    def on_closed(self, connection: _Connection) -> None:
        self._connections.pop(connection, None)

    def on_wrong_protocol(self, protocol: ClientProtocol, peer: str) -> None:
        self._wrong_protocols.report(protocol, peer, _ADVICE)

    def answer(self, method: str, target: str, headers: dict[str, str]) -> bytes:
        """Returns the whole response."""
        url = urlsplit(target)
        if url.path != _PATH:
            return _response(HTTPStatus.NOT_FOUND, f"there is {_PATH} here, not {url.path}\n")
        if method not in ("GET", "HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, f"expected GET, not {method}\n")
        environ = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": url.path,
            "QUERY_STRING": url.query,
            "HTTP_ACCEPT": headers.get("accept", ""),
            "HTTP_ACCEPT_ENCODING": headers.get("accept-encoding", ""),
            "wsgi.input": io.BytesIO(),
        }
        head: list[tuple[str, str]] = []
        try:
            body = b"".join(self._app(environ, lambda _, found: head.extend(found)))
        except Exception as error:
            log.exception("could not render the metrics")
            return _response(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}\n")
        return _head(HTTPStatus.OK, [*head, ("Content-Length", str(len(body)))]) + (body if method == "GET" else b"")


class _Connection(asyncio.Protocol):
    """A connection with one request and one answer."""

    def __init__(self, server: MetricsServer) -> None:
        self._server = server
        self._received = b""
        self._refusal: GrpcRefusal | None = None
        self.is_answered = False

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport
        self._deadline = self._after(REQUEST_TIMEOUT_S)
        self._server.on_connected(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._deadline.cancel()
        self._server.on_closed(self)

    def end(self) -> None:
        """Ends the connection immediately."""
        self._transport.abort()

    def _after(self, timeout_s: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(timeout_s, self.end)

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            self._transport.write(self._refusal.answer(data))
        elif not self.is_answered:
            self._received += data
            self._handle_received()

    def _handle_received(self) -> None:
        received = self._received
        protocol = recognised(received)
        if len(received) >= FIRST_BYTES and protocol is not ClientProtocol.HTTP:
            self._refuse(protocol)
        elif _END_OF_HEAD in received:
            self._answer(*_parse(received))
        elif len(received) > REQUEST_MAX_BYTES:
            self._send(_response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, ""))

    def _refuse(self, protocol: ClientProtocol | None) -> None:
        if protocol is not None:
            peer = self._transport.get_extra_info("peername")
            self._server.on_wrong_protocol(protocol, str(peer[0]) if peer else "a client that has gone")
        if protocol is ClientProtocol.GRPC:
            self._refusal = GrpcRefusal(_ADVICE)
            self._transport.write(self._refusal.answer(self._received))
            self._received = b""
        else:
            self._transport.close()

    def _answer(self, method: str, target: str, headers: dict[str, str]) -> None:
        self._send(self._server.answer(method, target, headers))

    def _send(self, response: bytes) -> None:
        self.is_answered = True
        self._received = b""
        self._deadline.cancel()
        self._deadline = self._after(ANSWER_TIMEOUT_S)
        self._transport.write(response)
        self._transport.close()


def _parse(received: bytes) -> tuple[str, str, dict[str, str]]:
    """Returns method, target, and headers by lower-case name."""
    request, *lines = received.partition(_END_OF_HEAD)[0].decode("latin-1").split("\r\n")
    method, _, rest = request.partition(" ")
    pairs = (line.partition(":") for line in lines)
    return method, rest.partition(" ")[0], {name.strip().lower(): value.strip() for name, _, value in pairs}


def _response(status: HTTPStatus, text: str) -> bytes:
    body = text.encode("utf-8", "replace")
    head = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
    return _head(status, head) + body


def _head(status: HTTPStatus, headers: list[tuple[str, str]]) -> bytes:
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join([*lines, "Connection: close"]) + "\r\n\r\n").encode("latin-1", "replace")
