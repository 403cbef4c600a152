"""A Kafka listener where clients log in: what is served before and after, and what becomes of clients that go no
further."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import uvloop

from klamm.acls import AclOperation, ResourceType
from klamm.errors import ErrorCode
from klamm.secret import Secret
from klamm.security.sasl.plain_client import PlainClient
from klamm.security.sasl.scram_client import ScramClient
from klamm.security.sasl.scram_keys import ScramMechanism, credential_of, salted_password
from klamm_broker.kafka.handshake_room import SHARE_OF_AN_ADDRESS, HandshakeRoom
from klamm_broker.kafka.requests import ApiKey, Request
from klamm_broker.kafka.sasl_clients import SaslClients
from klamm_broker.kafka.tls_clients import TlsClients
from klamm_server.config.sasl_settings import ListenerSaslSettings
from klamm_server.metadata.acl_index import AclIndex
from klamm_server.metadata.image import MetadataImage
from klamm_server.runtime.clock import SystemClock
from klamm_server.security.acls.authorizer import StandardAuthorizer
from klamm_server.security.gate import Gate
from klamm_server.security.logins.logins import Logins
from klamm_server.security.session import CALLER
from tests.support import certificates
from tests.support.kafka_door import REQUEST_MAX_BYTES, Door, answer_to, echo, frame
from tests.support.tls_world import TlsWorld
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
    """What the listener knows of its clients: alice and bob, and how many may be on their way in."""

    def __init__(self, *, unauthenticated_max: int = 1_000, **settings: str) -> None:
        given = {
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
            "sasl.server.max.receive.size": str(RECEIVE_MAX),
            "connection.failed.authentication.delay.ms": "0",
            "authentication.timeout.ms": "60000",
            **{name.replace("_", "."): text for name, text in settings.items()},
        }
        self.logins = Logins({"SASL": ListenerSaslSettings.parse(given)}, SystemClock())
        self.logins.on_image(image(alice="wonderland", bob="builder"))
        self.room = HandshakeRoom(unauthenticated_max)
        at = self.logins.at("SASL")
        assert at is not None
        self.sasl = SaslClients(at, self.room, SystemClock())

    @contextlib.asynccontextmanager
    async def opened(
        self, handle: Any = echo, tls: TlsClients | None = None, gate: Gate | None = None
    ) -> AsyncIterator[Door]:
        if tls is not None:
            tls.room = self.room
        async with Door(handle, connections_max=1_000, sasl=self.sasl, tls=tls, gate=gate) as door:
            try:
                yield door
            finally:
                await Client.close_all()
        await until(lambda: len(self.room) == 0)
        self.logins.close()


def message(api_key: ApiKey, version: int, body: bytes) -> bytes:
    """A request with its length."""
    text = struct.pack(">hhih", api_key, version, 7, -1) + body
    return struct.pack(">i", len(text)) + text


class Client:
    """One connection; `ask` gives the body of an answer, `is_cut_off` whether there is an end of it."""

    made: ClassVar[list[asyncio.StreamWriter]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def of(cls, door: Door, tls: ssl.SSLContext | None = None) -> Client:
        client = cls(*await door.connect(tls))
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
        """The error's code."""
        name = mechanism.encode()
        answer = await self.ask(ApiKey.SASL_HANDSHAKE, 1, struct.pack(">h", len(name)) + name)
        return int.from_bytes(answer[:2], "big")

    async def authenticate(self, data: bytes) -> tuple[int, bytes, int]:
        """The error's code, the bytes and the session's lifetime."""
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
        """Waits for the end; whatever is still said before it does not count as one."""
        try:
            return await self.reader.read(1) == b""
        except OSError:
            return True


@both_loops
@pytest.mark.parametrize("login", [Client.by_plain, Client.by_scram])
def test_who_has_logged_in_is_served(run: Run, login: Callable[[Client], Any]) -> None:
    async def scenario() -> None:
        world = World()
        async with world.opened() as door:
            client = await Client.of(door)
            await until(lambda: len(world.room) == 1)
            assert await login(client) == 0
            assert len(world.room) == 0
            assert await client.is_served()
            assert await client.is_served(b"x" * (REQUEST_MAX_BYTES - 100))

    run(scenario())


@both_loops
@pytest.mark.parametrize("login", [Client.by_plain, Client.by_scram])
@pytest.mark.parametrize("name", ["alice", "nobody"])
def test_a_wrong_password_is_answered_and_ends_the_connection(run: Run, login: Any, name: str) -> None:
    async def scenario() -> None:
        async with World().opened() as door:
            client = await Client.of(door)
            assert await login(client, name, "wrong") == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await client.is_cut_off()

    run(scenario())


@both_loops
def test_an_unknown_mechanism_is_answered_with_those_there_are(run: Run) -> None:
    async def scenario() -> None:
        async with World().opened() as door:
            client = await Client.of(door)
            answer = await client.ask(ApiKey.SASL_HANDSHAKE, 1, b"\x00\x06GSSAPI")
            assert answer == b"\x00\x21\x00\x00\x00\x02\x00\x0dSCRAM-SHA-256\x00\x05PLAIN"
            assert await client.is_cut_off()

    run(scenario())


@both_loops
def test_before_the_login_nothing_else_is_looked_at(run: Run) -> None:
    handled: list[Request] = []

    def handle(request: Request) -> Any:
        handled.append(request)
        return [b"versions"]

    async def scenario() -> None:
        async with World().opened(handle) as door:
            early = await Client.of(door)
            early.writer.write(frame(1, b"a"))
            assert await early.is_cut_off()
            for request in (ApiKey.PRODUCE, 9, b""), (ApiKey.METADATA, 12, b"\x00\x01"):
                between = await Client.of(door)
                assert await between.handshake() == 0
                between.writer.write(message(*request))
                assert await between.is_cut_off()
            assert not handled
            # That is for everybody.
            asking = await Client.of(door)
            assert await asking.ask(ApiKey.API_VERSIONS, 0, b"") == b"versions"
            assert await asking.by_plain() == 0
            assert [one.api_key for one in handled] == [ApiKey.API_VERSIONS]

    run(scenario())


@both_loops
@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
def test_what_comes_during_a_login_is_told_so_and_ends_it(run: Run, again: bool) -> None:
    async def scenario() -> None:
        async with World().opened() as door:
            for request, answer in {
                (ApiKey.HEARTBEAT, 0, b"what nobody reads"): b"\x00\x22",
                (ApiKey.API_VERSIONS, 0, b""): b"\x00\x22\x00\x00\x00\x00",
                (ApiKey.SASL_HANDSHAKE, 1, b"\x00\x05PLAIN"): b"\x00\x22\x00\x00\x00\x00",
            }.items():
                client = await Client.of(door)
                if again:
                    assert await client.by_plain() == 0
                assert await client.handshake() == 0
                # What is sent behind it is not looked at any more.
                client.writer.write(message(*request) + frame(1, b"a"))
                assert await answer_to(client.reader) == (7, answer)
                assert await client.is_cut_off()

    run(scenario())


@both_loops
@pytest.mark.parametrize("size", [RECEIVE_MAX + 1, 2**31 - 1, -1, 0])
def test_a_frame_that_is_too_large_ends_the_connection_at_once(run: Run, size: int) -> None:
    async def scenario() -> None:
        async with World().opened() as door:
            client = await Client.of(door)
            client.writer.write(struct.pack(">i", size))
            assert await client.is_cut_off()

    run(scenario())


@both_loops
@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
def test_who_takes_too_long_is_cut_off_and_others_are_not(run: Run, with_tls: bool, tmp_path: Path) -> None:
    async def scenario() -> None:
        world, tls_world = World(authentication_timeout_ms="4000"), TlsWorld(tmp_path)
        tls, dialler = (tls_world.clients(), tls_world.dialler()) if with_tls else (None, None)
        async with world.opened(tls=tls) as door:
            good = await Client.of(door, dialler)
            assert await good.by_plain() == 0
            silent, halfway, dripping = [await Client.of(door, dialler) for _ in range(3)]
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await halfway.handshake()

            async def drip() -> None:
                while True:
                    dripping.writer.write(b"\x00")
                    await asyncio.sleep(0.05)

            drops = asyncio.create_task(drip())
            try:
                for one in (silent, halfway, dripping):
                    assert await one.is_cut_off()
            finally:
                drops.cancel()
            assert await good.is_served()

    run(scenario())


@both_loops
def test_a_failure_is_answered_also_if_that_waits_longer_than_a_login_may_take(run: Run) -> None:
    async def scenario() -> None:
        world = World(authentication_timeout_ms="4000", connection_failed_authentication_delay_ms="5000")
        async with world.opened() as door:
            client = await Client.of(door)
            assert await client.by_plain("alice", "wrong") == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await client.is_cut_off()

    run(scenario())


@both_loops
@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
def test_one_address_has_a_bounded_number_of_connections_without_a_login(
    run: Run, with_tls: bool, tmp_path: Path
) -> None:
    async def scenario() -> None:
        world, tls_world = World(unauthenticated_max=3 * SHARE_OF_AN_ADDRESS), TlsWorld(tmp_path)
        tls, dialler = (tls_world.clients(), tls_world.dialler()) if with_tls else (None, None)
        async with world.opened(tls=tls) as door:
            good = await Client.of(door, dialler)
            assert await good.by_plain() == 0
            waiting = [await Client.of(door, dialler) for _ in range(3)]
            await until(lambda: len(world.room) == 3)
            with contextlib.suppress(OSError):
                assert await (await Client.of(door, dialler)).is_cut_off()
            assert await waiting[0].by_plain() == 0
            await until(lambda: len(world.room) == 2)
            waiting[1].writer.close()
            await until(lambda: len(world.room) == 1)
            assert await (await Client.of(door, dialler)).by_plain() == 0
            assert await good.is_served()

    run(scenario())


@both_loops
def test_who_logs_in_again_goes_on_and_who_should_have_is_cut_off(run: Run) -> None:
    async def scenario() -> None:
        async with World(connections_max_reauth_ms="3000").opened() as door:
            client, late, other = [await Client.of(door) for _ in range(3)]
            for one in (client, late, other):
                await one.handshake()
                code, _, lifetime_ms = await one.authenticate(PlainClient("alice", Secret("wonderland")).first())
                assert (code, lifetime_ms) == (0, 3000)
            # As somebody else, or by something else: never.
            assert await other.by_plain("bob", "builder") == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await other.is_cut_off()
            loop = asyncio.get_running_loop()
            end_s = loop.time() + 3.1
            while loop.time() < end_s:
                assert await client.by_plain() == 0
                assert await client.is_served()
                await asyncio.sleep(0.1)
            late.writer.write(frame(1, b"a"))
            assert await late.is_cut_off()

    run(scenario())


@both_loops
def test_a_credential_that_goes_takes_connections_along_that_wait(run: Run) -> None:
    handled: list[Request] = []

    async def for_ever(request: Request) -> Any:
        handled.append(request)
        await asyncio.Event().wait()

    async def scenario() -> None:
        world = World()
        async with world.opened(for_ever) as door:
            waiting, idle, other = [await Client.of(door) for _ in range(3)]
            for one in (waiting, idle):
                assert await one.by_scram() == 0
            assert await other.by_plain("bob", "builder") == 0
            for one in (waiting, other):
                one.writer.write(frame(1, b"a"))
            await until(lambda: len(handled) == 2)
            world.logins.on_image(image(alice="new", bob="other"))
            world.logins.on_image(image(bob="other"))
            for one in (waiting, idle, other):
                assert await one.is_cut_off()
            assert len(door.listener) == 0

    run(scenario())


@both_loops
def test_the_session_is_the_users(run: Run) -> None:
    seen: list[tuple[str, str, bool]] = []

    def handle(request: Request) -> Any:
        caller = CALLER.get()
        assert caller is not None
        may = caller.may(AclOperation.READ, ResourceType.TOPIC, "t")
        seen.append((caller.principal, caller.host, may))
        return [b"a"]

    async def scenario() -> None:
        gate = Gate(StandardAuthorizer(super_users=["User:alice"], allow_everyone_if_no_acl_found=False), AclIndex)
        async with World().opened(handle, gate=gate) as door:
            for name, password in (("alice", "wonderland"), ("bob", "builder")):
                client = await Client.of(door)
                await client.ask(ApiKey.API_VERSIONS, 0, b"")
                assert await client.by_plain(name, password) == 0
                await client.is_served(b"a")

    run(scenario())
    nobody = ("User:ANONYMOUS", "127.0.0.1", False)
    assert seen == [nobody, ("User:alice", "127.0.0.1", True), nobody, ("User:bob", "127.0.0.1", False)]


@both_loops
def test_a_certificate_lets_in_and_the_login_says_who_it_is(run: Run, tmp_path: Path) -> None:
    seen: list[str] = []

    def handle(request: Request) -> Any:
        caller = CALLER.get()
        assert caller is not None
        seen.append(caller.principal)
        return [b"a"]

    async def scenario() -> None:
        tls_world = TlsWorld(tmp_path)
        tls = tls_world.clients(ssl_client_auth="required")
        tls = TlsClients(tls.context, tls._rules, timeout_ms=tls.timeout_ms, room=tls.room, names_clients=False)
        gate = Gate(StandardAuthorizer(super_users=[], allow_everyone_if_no_acl_found=False), AclIndex)
        async with World().opened(handle, tls=tls, gate=gate) as door:
            client = await Client.of(door, tls_world.dialler(certificates.client("carol")))
            assert await client.by_scram() == 0
            assert await client.is_served(b"a")

    run(scenario())
    assert seen == ["User:alice"]
