"""A Kafka listener where clients log in, and clients that do so step by step."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import uvloop

from klamm.secret import Secret
from klamm.security.sasl.plain_client import PlainClient
from klamm.security.sasl.scram_client import ScramClient
from klamm.security.sasl.scram_keys import ScramMechanism, credential_of, salted_password
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.login.sasl_clients import SaslClients
from klamm_broker.kafka.net.handshake_limit import HandshakeLimit
from klamm_broker.kafka.net.tls_clients import TlsClients
from klamm_server.config.sasl_settings import ListenerSaslSettings
from klamm_server.metadata.image import MetadataImage
from klamm_server.runtime.clock import SystemClock
from klamm_server.security.auditor import Auditor
from klamm_server.security.gate import Gate
from klamm_server.security.logins.logins import Logins
from klamm_server.security.quotas.client_quotas import ClientQuotas
from tests.support.kafka_listener import ServedListener, answer_to, echo, frame
from tests.support.waiting import until

SHA_256 = ScramMechanism.SHA_256
RECEIVE_MAX = 2_000


def run_with_uvloop(scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario)


both_loops = pytest.mark.parametrize("run", [asyncio.run, run_with_uvloop], ids=["asyncio", "uvloop"])
Run = Callable[[Coroutine[Any, Any, None]], None]


def image(**passwords: str) -> MetadataImage:
    credentials = {
        (name, SHA_256): credential_of(SHA_256, salted_password(SHA_256, Secret(text), b"salt", 4096), b"salt", 4096)
        for name, text in passwords.items()
    }
    return replace(MetadataImage.empty(), scram_credentials=credentials, cluster_secret=b"secret")


class World:
    """The listener's knowledge of its clients: alice and bob, and the number of clients that may be logging in."""

    def __init__(self, *, unauthenticated_max: int = 1_000, auditor: Auditor | None = None, **settings: str) -> None:
        given = {
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
            "sasl.server.max.receive.size": str(RECEIVE_MAX),
            "connection.failed.authentication.delay.ms": "0",
            "authentication.timeout.ms": "60000",
            **{name.replace("_", "."): text for name, text in settings.items()},
        }
        self.logins = Logins({"SASL": ListenerSaslSettings.parse(given)}, SystemClock(), random.SystemRandom(), auditor)
        self.logins.on_image(image(alice="wonderland", bob="builder"))
        self.limit = HandshakeLimit(unauthenticated_max)
        at = self.logins.at("SASL")
        assert at is not None
        self.sasl = SaslClients(at, self.limit, SystemClock())

    @contextlib.asynccontextmanager
    async def opened(
        self,
        handle: Any = echo,
        tls: TlsClients | None = None,
        gate: Gate | None = None,
        quotas: ClientQuotas | None = None,
    ) -> AsyncIterator[ServedListener]:
        if tls is not None:
            tls.limit = self.limit
        async with ServedListener(
            handle, connections_max=1_000, sasl=self.sasl, tls=tls, gate=gate, quotas=quotas
        ) as served:
            try:
                yield served
            finally:
                await Client.close_all()
        await until(lambda: len(self.limit) == 0)
        self.logins.close()


def message(api_key: ApiKey, version: int, body: bytes) -> bytes:
    """Returns a request with its length in front."""
    text = struct.pack(">hhih", api_key, version, 7, -1) + body
    return struct.pack(">i", len(text)) + text


class Client:
    """One connection. `ask` returns the body of an answer. `is_cut_off` is true if the server closes the connection."""

    made: ClassVar[list[asyncio.StreamWriter]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def of(cls, authenticator: ServedListener, tls: ssl.SSLContext | None = None) -> Client:
        client = cls(*await authenticator.connect(tls))
        cls.made.append(client.writer)
        return client

    @classmethod
    async def close_all(cls) -> None:
        while cls.made:
            writer = cls.made.pop()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def ask(self, api_key: ApiKey, version: int, body: bytes) -> bytes:
        self.writer.write(message(api_key, version, body))
        number, answer = await answer_to(self.reader)
        assert number == 7
        return answer

    async def handshake(self, mechanism: str = "PLAIN") -> int:
        """Sends a handshake, and returns the error code of the answer."""
        name = mechanism.encode()
        answer = await self.ask(ApiKey.SASL_HANDSHAKE, 1, struct.pack(">h", len(name)) + name)
        return int.from_bytes(answer[:2], "big")

    async def authenticate(self, data: bytes) -> tuple[int, bytes, int]:
        """Sends a message of a login. Returns the error code, the server's bytes and the session's lifetime in
        milliseconds."""
        answer = await self.ask(ApiKey.SASL_AUTHENTICATE, 1, struct.pack(">i", len(data)) + data)
        code, text_size = struct.unpack_from(">hh", answer)
        at = 4 + max(0, text_size)
        (size,) = struct.unpack_from(">i", answer, at)
        return code, answer[at + 4 : at + 4 + size], struct.unpack(">q", answer[at + 4 + size :])[0]

    async def by_plain(self, name: str = "alice", password: str = "wonderland") -> int:
        assert await self.handshake() == 0
        return (await self.authenticate(PlainClient(name, Secret(password)).first()))[0]

    async def by_scram(self, name: str = "alice", password: str = "wonderland") -> int:
        assert await self.handshake("SCRAM-SHA-256") == 0
        client = ScramClient(SHA_256, name, Secret(password), nonce="client")
        proof = client.step((await self.authenticate(client.first()))[1])
        assert proof is not None
        return (await self.authenticate(proof))[0]

    async def is_served(self, body: bytes = b"ab") -> bool:
        self.writer.write(frame(1, body))
        return await answer_to(self.reader) == (1, body)

    async def is_cut_off(self) -> bool:
        """Waits for the next byte. True if the server has closed the connection, false if it has sent a byte."""
        try:
            return await self.reader.read(1) == b""
        except OSError:
            return True
