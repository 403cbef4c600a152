"""A Kafka listener with a handler of the test, and the frames that tests send to it."""

from __future__ import annotations

import asyncio
import functools
import ssl
import struct
from collections.abc import Callable, Coroutine
from typing import Any

from klamm_broker.io.request_memory import RequestMemory
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.login.sasl_clients import SaslClients
from klamm_broker.kafka.net.connection import Answer
from klamm_broker.kafka.net.connection_fairness import ConnectionFairness
from klamm_broker.kafka.net.listener import ConnectionLimit, KafkaListener
from klamm_broker.kafka.net.tls_clients import TlsClients
from klamm_broker.kafka.requests import Request
from klamm_server.runtime.clock import SystemClock
from klamm_server.runtime.waiting import Waiting
from klamm_server.security.gate import Gate
from klamm_server.security.quotas.client_quotas import ClientQuotas
from klamm_server.security.quotas.connection_pace import ConnectionPace

HEARTBEAT_V0 = struct.Struct(">hhih")
REQUEST_MAX_BYTES = 1_000_000


def waits(handle: Callable[[Request], Coroutine[Any, Any, Answer]]) -> Callable[[Request], Waiting[Answer]]:
    """Returns a handler whose answers must be waited for."""

    @functools.wraps(handle)
    def handle_later(request: Request) -> Waiting[Answer]:
        return Waiting(handle(request))

    return handle_later


class ServedListener:
    """A Kafka listener with a handler of the test."""

    def __init__(
        self,
        handle: Callable[[Request], Answer | Waiting[Answer]],
        *,
        connections_max: int = 10,
        memory_bytes: int = 10 * REQUEST_MAX_BYTES,
        request_max_bytes: int = REQUEST_MAX_BYTES,
        tls: TlsClients | None = None,
        quotas: ClientQuotas | None = None,
        pace: ConnectionPace | None = None,
        sasl: SaslClients | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.memory = RequestMemory(memory_bytes)
        self.limit = ConnectionLimit(connections_max)
        self.listener = KafkaListener(
            handle,
            self.memory,
            self.limit,
            request_max_bytes=request_max_bytes,
            send_buffer_bytes=65_536,
            idle_max_ms=60_000,
            clock=SystemClock(),
            tls=tls,
            quotas=quotas,
            pace=pace,
            sasl=sasl,
            gate=gate,
        )
        # This clock never moves, so the load of the machine does not change the turn in which a request is served.
        self.listener.turns = ConnectionFairness(lambda: 1.0)

    async def __aenter__(self) -> ServedListener:
        self.port = await self.listener.bind("127.0.0.1", 0)
        await self.listener.open()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.listener.close()
        assert self.memory.held_bytes == 0

    async def connect(self, tls: ssl.SSLContext | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=tls)


def frame(number: int, body: bytes = b"") -> bytes:
    message = HEARTBEAT_V0.pack(ApiKey.HEARTBEAT, 0, number, -1) + body
    return struct.pack(">i", len(message)) + message


async def answer_to(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Reads one answer, and returns its correlation id and its body."""
    size, number = struct.unpack(">ii", await reader.readexactly(8))
    return number, await reader.readexactly(size - 4)


def echo(request: Request) -> Answer:
    """Returns the request's body at once, in two parts. A request with an empty body gets no answer."""
    body = bytes(request.frame[request.body_start :])
    return [body[:1], body[1:]] if body else None


@waits
async def echo_in_time(request: Request) -> Answer:
    """Returns the same answer as `echo`, but a few turns of the event loop later."""
    for _ in range(3):
        await asyncio.sleep(0)
    return echo(request)


def echo_by_turns(request: Request) -> Answer | Waiting[Answer]:
    """Answers every third request as `echo_in_time` does, and the others at once."""
    return echo(request) if request.correlation_id % 3 else echo_in_time(request)
