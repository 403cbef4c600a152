"""The Kafka port: accepts connections, bounds their number and their silence, and closes them when the broker stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import perf_counter

from klamm_broker import metrics
from klamm_broker.kafka.connection import Answer, AnswerInTime, KafkaConnection
from klamm_broker.kafka.loop_turns import LoopTurns
from klamm_broker.kafka.requests import ApiKey, Request
from klamm_broker.request_times import RequestTimes, waiting
from klamm_broker.rpc.request_memory import RequestMemory
from klamm_server.bound_sockets import bound_sockets
from klamm_server.clock import Clock
from klamm_server.wrong_door import Porter, Visitor

log = logging.getLogger(__name__)

BACKLOG = 1024
"""Connections that wait to be accepted."""
STALL_S = 10.0
STALL_BYTES = 64 * 1024
"""A frame that holds memory and gets fewer bytes in `STALL_S` is cut off, if other requests wait for memory."""


def _camel_case(api_key: ApiKey) -> str:
    """`LIST_OFFSETS` is ListOffsets."""
    return api_key.name.title().replace("_", "")


class ConnectionRoom:
    """How many connections there may be at all listeners together (`max.connections`)."""

    def __init__(self, connections_max: int) -> None:
        self.connections_max = connections_max
        self._taken = 0

    def take(self) -> bool:
        """Whether there was room for one more."""
        if self._taken >= self.connections_max:
            return False
        self._taken += 1
        return True

    def give_back(self) -> None:
        self._taken -= 1


class KafkaListener:
    """`bind`, `open`, `run`, `close`."""

    def __init__(
        self,
        handle: Callable[[Request], Answer | AnswerInTime],
        memory: RequestMemory,
        room: ConnectionRoom,
        *,
        request_max_bytes: int,
        send_buffer_bytes: int,
        idle_max_ms: int,
        clock: Clock,
    ) -> None:
        self.memory = memory
        self.turns = LoopTurns()
        self.request_max_bytes = request_max_bytes
        self.send_buffer_bytes = send_buffer_bytes
        self._handle = handle
        self._room = room
        self._idle_max_ms = idle_max_ms
        self._clock = clock
        self._connections: set[KafkaConnection] = set()
        self._arrived: dict[KafkaConnection, tuple[int, int]] = {}
        """When `cut_stalled_frames` was last called: a connection's last request, and the bytes of its next frame."""
        self._servers: list[asyncio.Server] = []
        self._times: dict[ApiKey, RequestTimes] = {}
        self._porter = Porter(log, "the Kafka listener", clock.monotonic_ms)
        self.grpc_addresses = ""
        """What a client of the gRPC API should have dialled, in words."""

    def __len__(self) -> int:
        """Connections."""
        return len(self._connections)

    async def bind(self, host: str, port: int) -> int:
        """Takes the port at every address of the host, and returns it; a free one if `port` is 0. Raises KlammError
        when it is taken."""
        loop = asyncio.get_running_loop()
        sockets = await loop.run_in_executor(None, bound_sockets, host, port)
        for one in sockets:
            server = await loop.create_server(
                lambda: KafkaConnection(self), sock=one, backlog=BACKLOG, start_serving=False
            )
            self._servers.append(server)
        bound: int = sockets[0].getsockname()[1]
        self._porter = Porter(log, f"the Kafka listener {host}:{bound}", self._clock.monotonic_ms)
        return bound

    async def open(self) -> None:
        """Accepts connections."""
        assert self._servers, "bind comes first"
        for server in self._servers:
            await server.start_serving()

    async def run(self) -> None:
        """Closes connections that have been silent for `connections.max.idle.ms`, and has those that were silent for a
        while give back memory. Closes those whose frames stand still while others wait."""
        while True:
            await asyncio.sleep(min(self._idle_max_ms / 4 / 1000, STALL_S))
            self.look_for_silence(self._clock.monotonic_ms())
            self.cut_stalled_frames()

    def look_for_silence(self, now_ms: int) -> None:
        for connection in list(self._connections):
            silent_ms = now_ms - connection.last_request_ms
            if connection.is_busy:
                continue
            if silent_ms > self._idle_max_ms:
                connection.close()
            elif silent_ms > self._idle_max_ms / 4:
                connection.trim()

    def cut_stalled_frames(self) -> None:
        """Closes each connection of which too little of a frame has come since the last call, while others wait.

        A frame takes memory for all of its bytes when it has sent the first 64 KiB. So a few clients that go no further
        could hold all of the memory until `connections.max.idle.ms`."""
        before, self._arrived = self._arrived, {}
        if not self.memory.is_waited_for:
            return
        for connection in list(self._connections):
            arrived_bytes = connection.arrived_bytes
            if arrived_bytes is None:
                continue
            request_ms, arrived_before = before.get(connection, (-1, 0))
            if request_ms == connection.last_request_ms and arrived_bytes - arrived_before < STALL_BYTES:
                connection.cut_off("its request stands still, and others wait for its memory")
            else:
                self._arrived[connection] = (connection.last_request_ms, arrived_bytes)

    async def close(self) -> None:
        """Also the connections that are there."""
        for server in self._servers:
            server.close()
        connections = list(self._connections)
        for connection in connections:
            connection.close()
        await asyncio.gather(*(connection.closed() for connection in connections))

    # What connections say (`ConnectionOwner`)

    def on_connected(self, connection: KafkaConnection) -> bool:
        if not self._room.take():
            log.warning("a connection is refused: max.connections=%d are open", self._room.connections_max)
            return False
        connection.last_request_ms = self._clock.monotonic_ms()
        self._connections.add(connection)
        return True

    def on_closed(self, connection: KafkaConnection) -> None:
        # One that was refused is not among them.
        if connection in self._connections:
            self._connections.remove(connection)
            self._room.give_back()

    def handle(self, connection: KafkaConnection, request: Request) -> Answer | AnswerInTime:
        connection.last_request_ms = self._clock.monotonic_ms()
        # Of ApiVersions any version is answered: 65,536 counters, if a client liked.
        version = request.version if request.is_spoken else "unknown"
        metrics.KAFKA_REQUESTS.labels(request.api_key, version).inc()
        times = self._times_of(request.api_key)
        began_s = perf_counter()
        answer = self._handle(request)
        took_s = perf_counter() - began_s
        times.local.observe(took_s)
        if connection.is_busy:
            times.queue.observe(connection.queued_s)
            began_s -= connection.queued_s
        connection.began_s = began_s
        if answer is not None and not isinstance(answer, list):
            return waiting(answer, times)
        if not connection.is_busy:
            times.total.observe(took_s)
        return answer

    def turn_away(self, visitor: Visitor, peer: str) -> str:
        speaks = "this is a Kafka listener of Klamm"
        advice = {
            Visitor.GRPC: f"{speaks}; clients of its gRPC API dial {self.grpc_addresses}",
            Visitor.TLS: f"{speaks}, without TLS (security.protocol=PLAINTEXT)",
        }.get(visitor, f"{speaks}; it speaks no HTTP")
        self._porter.turn_away(visitor, peer, advice)
        return advice

    def on_sent(self, connection: KafkaConnection, request: Request, send_s: float) -> None:
        times = self._times_of(request.api_key)
        times.send.observe(send_s)
        times.total.observe(perf_counter() - connection.began_s)

    def _times_of(self, api_key: ApiKey) -> RequestTimes:
        found = self._times.get(api_key)
        if found is None:
            found = self._times[api_key] = RequestTimes("KAFKA", _camel_case(api_key))
        return found
