"""Accepts the TLS connections of a listener on one socket, and runs their handshakes.

Before a handshake, the acceptor checks that there is room for a connection and for a handshake. Each connection uses
the TLS context that is current when it is accepted, so a changed certificate applies from the next connection on. A
handshake that takes too long is cut off. A failed handshake ends with a TLS alert, from which the client knows the
reason. Its cause is logged once a minute, so that a client that retries cannot fill the log.

After the alert, the acceptor reads and drops the client's bytes, until the client closes the connection. In TLS 1.3, a
client sends its first request before the server has refused its certificate. If a socket closes before it has read that
request, the kernel resets the connection. Then the client's next write fails, and on some systems the kernel drops the
alert. The client then reports a broken connection, and not its wrong certificate. Kafka keeps the connection open for
`connection.failed.authentication.delay.ms`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final, Protocol

from klamm.ordered_set import OrderedSet
from klamm.security.alerts import HandshakeFailed
from klamm_broker.kafka.net.connection import KafkaConnection
from klamm_broker.kafka.net.handshake_limit import HandshakeLimit
from klamm_server.net.wrong_protocol import ClientProtocol, WrongProtocolLog

log = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""The wait in seconds before the next accept, if the process has no descriptor left."""
SHUTDOWN_S: Final = 5.0
"""The seconds in which a client must end its TLS session."""
ALERT_S: Final = 1.0
"""The seconds after an alert in which the client must close the connection. The acceptor closes it after that."""
READ_BYTES: Final = 64 * 1024
"""The size of one read of bytes that are dropped."""
ALERT_BYTES: Final = 1024 * 1024
"""The bytes that the acceptor reads and drops after an alert. It closes the connection of a client that sends more."""

_WITHOUT_TLS: Final = {
    "HTTP_REQUEST": ClientProtocol.HTTP,
    "HTTPS_PROXY_REQUEST": ClientProtocol.HTTP,
    "WRONG_VERSION_NUMBER": ClientProtocol.WITHOUT_TLS,
}
"""The kind of client that spoke first, by OpenSSL's reason for refusing it."""


class Handshakes(Protocol):
    """The handshakes of a listener."""

    limit: HandshakeLimit

    @property
    def timeout_ms(self) -> int: ...

    def context(self) -> ssl.SSLContext:
        """Returns the current TLS context."""

    def refuse(self, peer: str, reason: str) -> None:
        """Notes a failed handshake. `reason` is OpenSSL's."""


class TlsAcceptor:
    """Accepts TLS connections on one socket. The owner calls `listen`, then `run` until it cancels it, then `close`."""

    def __init__(
        self,
        listening: socket.socket,
        handshakes: Handshakes,
        wrong_protocols: WrongProtocolLog,
        *,
        admit: Callable[[str], int | None],
        leave: Callable[[], None],
        make: Callable[[], KafkaConnection],
        protocol: str = "SSL",
    ) -> None:
        """`admit` reserves the place of a connection from an address. It returns the delay before the handshake in
        milliseconds, or None if there is no place. `leave` returns the place of a connection that failed. A connection
        with a login keeps its handshake's place. `protocol` is the clients' name of the protocol."""
        self._listening = listening
        self._handshakes = handshakes
        self._wrong_protocols = wrong_protocols
        self._admit = admit
        self._leave = leave
        self._make = make
        self._protocol = protocol
        self._under_way: OrderedSet[asyncio.Task[None]] = OrderedSet()

    @property
    def handshakes_under_way(self) -> int:
        """The number of accepted clients whose handshake, or whose alert after it, has not ended."""
        return len(self._under_way)

    def listen(self, backlog: int) -> None:
        """Lets `backlog` connections wait to be accepted."""
        self._listening.listen(backlog)
        self._listening.setblocking(False)

    async def run(self) -> None:
        """Accepts connections one after another until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(self._listening)
            except OSError as error:
                log.error("could not accept a connection: %s", error.strerror)
                await asyncio.sleep(RETRY_S)
                continue
            peer = str(address[0])
            if reached := self._handshakes.limit.take(peer):
                self._wrong_protocols.report_refused("a connection", peer, reached)
                accepted.close()
                continue
            throttle_ms = self._admit(peer)
            if throttle_ms is None:
                self._handshakes.limit.give_back(peer)
                accepted.close()
                continue
            connection = self._make()
            task = asyncio.create_task(
                self._shake_hands(connection, accepted, peer, throttle_ms), name="kafka-handshake"
            )
            self._under_way.add(task)
            task.add_done_callback(functools.partial(self._on_done, connection, peer))

    async def close(self) -> None:
        """Stops accepting, and cancels the running handshakes."""
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listening.close()

    def _on_done(self, connection: KafkaConnection, peer: str, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if connection.login is None or not connection.has_begun:
            self._handshakes.limit.give_back(peer)

    async def _shake_hands(
        self, connection: KafkaConnection, accepted: socket.socket, peer: str, throttle_ms: int
    ) -> None:
        try:
            if throttle_ms:
                if connection.login is not None:
                    connection.login.mute(throttle_ms)
                await asyncio.sleep(throttle_ms / 1000)
            # The event loop closes its descriptor when the handshake fails, so the alert needs another one.
            with accepted.dup() as for_alert:
                try:
                    await self._connect(connection, accepted)
                except HandshakeFailed as error:
                    self._report(error, peer)
                    await _send_alert(for_alert, error.alert)
        except OSError as error:
            self._report(error, peer)
        finally:
            if not connection.has_begun:
                accepted.close()
                self._leave()

    async def _connect(self, connection: KafkaConnection, accepted: socket.socket) -> None:
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: connection,
            accepted,
            ssl=self._handshakes.context(),
            ssl_handshake_timeout=self._handshakes.timeout_ms / 1000,
            ssl_shutdown_timeout=SHUTDOWN_S,
        )

    def _report(self, error: OSError, peer: str) -> None:
        reason = _reason(error)
        protocol = _WITHOUT_TLS.get(reason)
        if protocol is not None:
            self._wrong_protocols.report(
                protocol, peer, f"the listener accepts TLS only (security.protocol={self._protocol})"
            )
        elif isinstance(error, ssl.SSLError):
            self._wrong_protocols.report_refused("a TLS handshake", peer, reason)
            self._handshakes.refuse(peer, reason)
        elif isinstance(error, ConnectionAbortedError):
            self._wrong_protocols.report_refused(
                "a TLS handshake", peer, f"the handshake took longer than {self._handshakes.timeout_ms} ms"
            )
        else:
            log.debug("client=%s closed the connection during the TLS handshake: %s", peer, error)


async def _send_alert(client: socket.socket, alert: bytes) -> None:
    """Sends the alert, and waits until the client closes the connection, or a limit of time or bytes is reached."""
    loop = asyncio.get_running_loop()
    left = ALERT_BYTES
    # A client that has gone, or does not read, gets no alert. TimeoutError is an OSError, too.
    with contextlib.suppress(OSError):
        client.send(alert)
        client.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(ALERT_S):
            while left > 0 and (dropped := await loop.sock_recv(client, min(left, READ_BYTES))):
                left -= len(dropped)


def _reason(error: OSError) -> str:
    """Returns OpenSSL's name of the error, with the error of the certificate if there is one."""
    said = [getattr(error, name, None) for name in ("reason", "verify_message")]
    return ": ".join(part for part in said if part) or str(error)
