"""The Kafka listener: accepts connections, limits their number and their idle time, and closes them when the broker
stops."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

from klamm.ordered_set import OrderedSet
from klamm.process import PROCESS
from klamm.quotas import CONNECTION_CREATION_RATE
from klamm.setting import INT_MAX
from klamm_broker.io import metrics
from klamm_broker.io.request_memory import RequestMemory
from klamm_broker.io.request_times import RequestTimes, waiting
from klamm_broker.kafka.api import APIS, ApiKey
from klamm_broker.kafka.login.sasl_clients import SaslClients
from klamm_broker.kafka.net.connection import Answer, KafkaConnection
from klamm_broker.kafka.net.connection_fairness import ConnectionFairness
from klamm_broker.kafka.net.slice_sender import SliceSender
from klamm_broker.kafka.net.throttle import Throttle
from klamm_broker.kafka.net.tls_acceptor import TlsAcceptor
from klamm_broker.kafka.net.tls_clients import TlsClients
from klamm_broker.kafka.requests import Request
from klamm_server.metrics.throttles import on_throttled
from klamm_server.net.bound_sockets import bound_sockets
from klamm_server.net.wrong_protocol import ClientProtocol, WrongProtocolLog
from klamm_server.runtime.charged import charged
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.faults import watch
from klamm_server.runtime.waiting import Waiting
from klamm_server.security.audit.decisions import Call
from klamm_server.security.gate import Gate
from klamm_server.security.quotas.client_quotas import ClientQuotas
from klamm_server.security.quotas.connection_pace import ConnectionPace
from klamm_server.security.quotas.connection_rates import MUTED_MAX, ConnectionRates
from klamm_server.security.quotas.rate_window import WindowSpan
from klamm_server.security.session import CALL, Session, called_by

log = logging.getLogger(__name__)

BACKLOG = 1024
"""The most connections that wait to be accepted."""
STALL_S = 10.0
STALL_BYTES = 64 * 1024
"""A frame that holds memory and gets fewer bytes than this in `STALL_S` is cut off, if other requests wait for
memory."""

_FREE: Final = frozenset(
    {ApiKey.WRITE_TXN_MARKERS, ApiKey.KLAMM_REPLICA_FETCH, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
)
"""The APIs that no quota counts: requests of servers and of logins. Nothing is counted before the first login.
WriteTxnMarkers is counted if the client has no right to it, as in Kafka."""


def _camel_case(api_key: ApiKey) -> str:
    """Returns Kafka's name of an API, such as ListOffsets for `LIST_OFFSETS`."""
    return api_key.name.title().replace("_", "")


class ConnectionLimit:
    """Limits the connections of all listeners together, or of one listener (`max.connections`, KIP-402)."""

    def __init__(self, connections_max: int, whole: ConnectionLimit | None = None) -> None:
        """`whole` is the room of the whole broker, for the room of one listener."""
        self.connections_max = connections_max
        self._whole = whole
        self._taken = 0

    def take(self) -> str:
        """Takes a place for a connection. Returns the reached limit if there is none, otherwise ""."""
        if self._taken >= self.connections_max:
            return f"{'max.connections of this listener' if self._whole else 'max.connections'}={self.connections_max}"
        if self._whole is not None and (reached := self._whole.take()):
            return reached
        self._taken += 1
        return ""

    def give_back(self) -> None:
        self._taken -= 1
        if self._whole is not None:
            self._whole.give_back()


class KafkaListener:
    """A Kafka listener. The owner calls `bind`, `open`, `run` and `close`. With `tls`, connections are encrypted. With
    `sasl`, clients log in."""

    def __init__(
        self,
        handle: Callable[[Request], Answer | Waiting[Answer]],
        memory: RequestMemory,
        limit: ConnectionLimit,
        *,
        request_max_bytes: int,
        send_buffer_bytes: int,
        idle_max_ms: int,
        clock: Clock,
        tls: TlsClients | None = None,
        sasl: SaslClients | None = None,
        gate: Gate | None = None,
        quotas: ClientQuotas | None = None,
        pace: ConnectionPace | None = None,
        name: str = "",
    ) -> None:
        self.memory = memory
        self.turns = ConnectionFairness()
        self.request_max_bytes = request_max_bytes
        self.send_buffer_bytes = send_buffer_bytes
        self.slices = SliceSender() if tls is not None else None
        self._name = name
        self._handle = handle
        self._limit = limit
        self._tls = tls
        self._sasl = sasl
        self._gate = gate
        self._quotas = ClientQuotas(WindowSpan()) if quotas is None else quotas
        self._rates = ConnectionRates(self._quotas, pace or ConnectionPace(INT_MAX, WindowSpan()))
        self._idle_max_ms = idle_max_ms
        self._clock = clock
        self._elapsed_s = PROCESS.get().elapsed_s
        self._connections: OrderedSet[KafkaConnection] = OrderedSet()
        self._arrived: dict[KafkaConnection, tuple[int, int]] = {}
        """The state at the last call of `cut_stalled_frames`: for each connection, its last request and the bytes of
        its next frame."""
        self._servers: list[asyncio.Server] = []
        self._acceptors: list[TlsAcceptor] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._times: dict[ApiKey, RequestTimes] = {}
        self._wrong_protocols = WrongProtocolLog(log, "the Kafka listener", clock.monotonic_ms)
        self.grpc_addresses = ""
        """The addresses that a gRPC client should dial instead, as a text."""

    def __len__(self) -> int:
        """Returns the number of open connections."""
        return len(self._connections)

    @property
    def connections(self) -> tuple[KafkaConnection, ...]:
        """The open connections, the oldest first."""
        return tuple(self._connections)

    @property
    def handshakes_under_way(self) -> int:
        """The number of accepted clients whose TLS handshake, or whose alert after it, has not ended."""
        return sum(acceptor.handshakes_under_way for acceptor in self._acceptors)

    async def bind(self, host: str, port: int) -> int:
        """Binds the port on every address of the host. Returns the port, a free one if `port` is 0. Raises KlammError
        if the port is in use."""
        loop = asyncio.get_running_loop()
        sockets = await loop.run_in_executor(None, bound_sockets, host, port)
        bound: int = sockets[0].getsockname()[1]
        self._wrong_protocols = WrongProtocolLog(log, f"the Kafka listener {host}:{bound}", self._clock.monotonic_ms)
        for bound_socket in sockets:
            if self._tls is not None:
                self._acceptors.append(self._make_acceptor(bound_socket, self._tls))
                continue
            server = await loop.create_server(self._make, sock=bound_socket, backlog=BACKLOG, start_serving=False)
            self._servers.append(server)
        return bound

    async def open(self) -> None:
        """Starts accepting connections."""
        assert self._servers or self._acceptors, "bind comes first"
        for server in self._servers:
            await server.start_serving()
        for acceptor in self._acceptors:
            acceptor.listen(BACKLOG)
            task = asyncio.create_task(acceptor.run(), name="kafka-tls-acceptor")
            self._accepting.append(watch(task))

    async def run(self) -> None:
        """Closes connections that have been idle for `connections.max.idle.ms`, and frees the buffers of connections
        that have been idle for a shorter time. Closes connections whose incomplete frames hold memory that others wait
        for."""
        while True:
            await asyncio.sleep(min(self._idle_max_ms / 4 / 1000, STALL_S))
            self.close_idle_connections(self._clock.monotonic_ms())
            self.cut_stalled_frames()
            self.close_expired_connections(self._clock.wall_ms())

    def close_idle_connections(self, now_ms: int) -> None:
        for connection in list(self._connections):
            silent_ms = now_ms - connection.last_request_ms
            if connection.is_busy:
                continue
            if silent_ms > self._idle_max_ms:
                connection.close()
            elif silent_ms > self._idle_max_ms / 4:
                connection.trim()

    def close_expired_connections(self, wall_ms: int) -> None:
        """Closes connections whose client certificate has expired, because a new handshake would be refused too."""
        for connection in list(self._connections) if self._tls is not None else ():
            if connection.expires_ms is not None and connection.expires_ms <= wall_ms:
                connection.cut_off("the client's certificate has expired")

    def cut_stalled_frames(self) -> None:
        """Closes connections whose frame got too few bytes since the last call, if other requests wait for memory.

        A frame takes memory for all its bytes after its first 64 KiB. Without this check, a few clients that send no
        more could hold all memory until `connections.max.idle.ms`."""
        before, self._arrived = self._arrived, {}
        if not self.memory.is_waited_for:
            return
        for connection in list(self._connections):
            arrived_bytes = connection.arrived_bytes
            if arrived_bytes is None:
                continue
            request_ms, arrived_before = before.get(connection, (-1, 0))
            if request_ms == connection.last_request_ms and arrived_bytes - arrived_before < STALL_BYTES:
                connection.cut_off("the client stopped sending a request while other requests waited for memory")
            else:
                self._arrived[connection] = (connection.last_request_ms, arrived_bytes)

    async def close(self) -> None:
        """Closes the listener and its connections."""
        for server in self._servers:
            server.close()
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*(acceptor.close() for acceptor in self._acceptors))
        connections = list(self._connections)
        for connection in connections:
            connection.close()
        await asyncio.gather(*(connection.closed() for connection in connections))

    # Calls of connections (`ConnectionOwner`)

    def on_connected(self, connection: KafkaConnection) -> bool:
        throttle_ms = self._admit(connection.peer) if self._tls is None else 0
        if throttle_ms is None:
            return False
        connection.last_request_ms = self._clock.monotonic_ms()
        self._connections.add(connection)
        if throttle_ms:
            connection.mute(throttle_ms)
        if connection.login is not None and (reached := connection.login.begin(has_place=self._tls is not None)):
            self._wrong_protocols.report_refused("a connection", connection.peer, reached)
            return False
        return self._tls is None or self._tls.recognise(connection)

    def on_closed(self, connection: KafkaConnection) -> None:
        if connection.login is not None:
            connection.login.close()
        # A refused connection is not in the set.
        if connection in self._connections:
            self._connections.discard(connection)
            self._limit.give_back()

    def handle(self, connection: KafkaConnection, request: Request) -> Answer | Waiting[Answer]:
        connection.last_request_ms = self._clock.monotonic_ms()
        # ApiVersions accepts any version, so that a client could create 65,536 counters.
        version = request.version if request.is_spoken else "unknown"
        metrics.KAFKA_REQUESTS.labels(request.api_key, version).inc()
        times = self._times_of(request.api_key)
        if (
            self._quotas.is_on
            and (connection.login is None or connection.login.is_done)
            and (request.api_key not in _FREE or self._is_refused(connection, request.api_key))
        ):
            request = self._charged(connection, request)
        if request.api_key is ApiKey.KLAMM_REPLICA_FETCH:
            request = request._replace(connection=connection)
        began_s = self._elapsed_s()
        handle = self._handle
        if connection.login is not None:
            handle = connection.login.handler_of(request) or handle
        if self._gate is None:
            answer = handle(request)
        else:
            session = _session(self._gate, connection)
            if session.audit is not None:
                CALL.set(Call(request.api_key.name, request.client_id, self._name))
            answer = called_by(session, handle, request)
        took_s = self._elapsed_s() - began_s
        times.local.observe(took_s)
        if request.throttle is not None:
            request.throttle.charge_time(took_s)
            if isinstance(answer, Waiting):
                answer = Waiting(charged(answer.work, request.throttle.charge_time))
        if connection.is_busy:
            times.queue.observe(connection.queued_s)
            began_s -= connection.queued_s
        connection.began_s = began_s
        if isinstance(answer, Waiting):
            return Waiting(waiting(answer.work, times))
        if not connection.is_busy:
            times.total.observe(took_s)
        return answer

    def _is_refused(self, connection: KafkaConnection, api_key: ApiKey) -> bool:
        """Returns True if the client has no right to an API of servers."""
        if self._gate is None or api_key is not ApiKey.WRITE_TXN_MARKERS:
            return False
        needed = APIS[api_key].check.of_cluster
        return not _session(self._gate, connection).may_be_shown_with_cluster(*needed)

    def _charged(self, connection: KafkaConnection, request: Request) -> Request:
        """Returns the request with its throttle, after it has charged a produce for its bytes."""
        throttle = Throttle(self._quotas, self._clock, connection.principal, request.client_id)
        if request.api_key in (ApiKey.PRODUCE, ApiKey.KLAMM_PRODUCE):
            throttle.charge_produce(len(request.frame))
        connection.throttle = throttle
        return request._replace(throttle=throttle)

    def turn_away(self, protocol: ClientProtocol, peer: str) -> str:
        speaks = "this is a Kafka listener of Klamm"
        advice = {
            ClientProtocol.GRPC: f"{speaks}; clients of the gRPC API connect to {self.grpc_addresses}",
            ClientProtocol.TLS: f"{speaks}, without TLS (security.protocol={'SASL_' if self._sasl else ''}PLAINTEXT)",
        }.get(protocol, f"{speaks}, which does not support HTTP")
        self._wrong_protocols.report(protocol, peer, advice)
        return advice

    def on_sent(self, connection: KafkaConnection, request: Request, send_s: float) -> None:
        times = self._times_of(request.api_key)
        times.send.observe(send_s)
        times.total.observe(self._elapsed_s() - connection.began_s)

    def _admit(self, peer: str) -> int | None:
        """Returns the delay of a new connection in milliseconds, or None if there is no room for it."""
        if reached := self._limit.take():
            log.warning("refused a connection: %s are open", reached)
            return None
        if not self._rates.is_on:
            return 0
        throttle_ms = self._rates.admit(peer, self._clock.monotonic_ms())
        if throttle_ms is None:
            self._limit.give_back()
            self._wrong_protocols.report_refused("a connection", peer, f"{MUTED_MAX} connections are already held back")
        elif throttle_ms:
            on_throttled(CONNECTION_CREATION_RATE, throttle_ms)
        return throttle_ms

    def _make_acceptor(self, listening: socket.socket, tls: TlsClients) -> TlsAcceptor:
        return TlsAcceptor(
            listening,
            tls,
            self._wrong_protocols,
            admit=self._admit,
            leave=self._limit.give_back,
            make=self._make,
            protocol="SASL_SSL" if self._sasl else "SSL",
        )

    def _make(self) -> KafkaConnection:
        """Makes the connection of a client that was just accepted."""
        connection = KafkaConnection(self)
        if self._sasl is not None:
            self._sasl.expect(connection)
        return connection

    def _times_of(self, api_key: ApiKey) -> RequestTimes:
        found = self._times.get(api_key)
        if found is None:
            found = self._times[api_key] = RequestTimes("KAFKA", _camel_case(api_key))
        return found


def _session(gate: Gate, connection: KafkaConnection) -> Session:
    """Returns the connection's authorization session. Creates a new one after the client's principal has changed."""
    session = connection.session
    if session is None or session.principal != connection.principal:
        session = connection.session = gate.session(connection.principal, connection.peer)
    return session
