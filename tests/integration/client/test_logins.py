"""Tests logins over gRPC on real sockets: accepted and refused clients, and sessions that end during calls."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from klamm.config import ClientConfig
from klamm.errors import AuthenticationError, BrokerError, ErrorCode, SaslAuthenticationError
from klamm.rpc.call_metadata import CALL_METADATA
from klamm.rpc.client_sasl import client_sasl
from klamm.rpc.client_tls import client_tls
from klamm.rpc.connection import Connection
from klamm.rpc.grpc_transport import GrpcTransport
from klamm.rpc.login import REQUEST as REQUEST_METADATA
from klamm.rpc.login import log_in
from klamm.rpc.options import SERVERS
from klamm.secret import Secret
from klamm.security.sasl.scram_keys import ScramMechanism, credential_of, salted_password
from klamm.security.tls_settings import ListenerTlsSettings
from klamm.wire.v1.authentication_pb2 import SaslHandshakeRequest
from klamm.wire.v1.authentication_rpc import AUTHENTICATION
from klamm.wire.v1.broker_pb2 import FetchRequest, ListOffsetsRequest, ListOffsetsResponse, ProduceResponse
from klamm.wire.v1.broker_rpc import BROKER
from klamm.wire.v1.common_pb2 import DescribeServerRequest
from klamm.wire.v1.common_rpc import SERVER
from klamm.wire.v1.controller_pb2 import DescribeClusterRequest
from klamm.wire.v1.controller_rpc import ADMIN
from klamm_server.config.sasl_settings import ListenerSaslSettings
from klamm_server.metadata.image import MetadataImage
from klamm_server.net.listeners import Listener, SecurityProtocol
from klamm_server.rpc import before_login, own_services
from klamm_server.rpc.other_services import KnownServers, Role
from klamm_server.rpc.server import RpcServer
from klamm_server.runtime.clock import SystemClock
from klamm_server.security.logins.logins import Logins
from klamm_server.security.peer_principals import LOGGED_IN
from klamm_server.security.server_tls import ServerTls
from tests.support.certificates import client, server, write_stores
from tests.support.waiting import patience, until

REQUEST = DescribeServerRequest()
USER, PASSWORD = "alice", "s3cret"
TIMEOUT_MS = 60_000
LIFETIME_MS = 3_600_000
"""No session ends by itself while a test runs."""


def image(**passwords: str) -> MetadataImage:
    """Returns the metadata of a cluster with these users and passwords."""
    credentials = {
        (name, mechanism): credential_of(
            mechanism, salted_password(mechanism, Secret(text), b"0123456789", 4096), b"0123456789", 4096
        )
        for name, text in passwords.items()
        for mechanism in ScramMechanism
    }
    return replace(MetadataImage.empty(), scram_credentials=credentials, cluster_secret=b"secret")


class BrokerApi:
    """A broker service with some calls that note their caller."""

    def __init__(self) -> None:
        self.callers: list[str | None] = []
        self.streams = 0

    def __getattr__(self, name: str) -> Any:
        async def other(request: Any, context: Any) -> Any:
            raise AssertionError(name)

        return other

    async def list_offsets(self, request: Any, context: Any) -> Any:
        self.callers.append(LOGGED_IN.get())
        return ListOffsetsResponse()

    async def produce_stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
        self.callers.append(LOGGED_IN.get())
        self.streams += 1
        try:
            async for _ in requests:
                yield ProduceResponse()
        finally:
            self.streams -= 1

    async def fetch_stream(self, request: Any, context: Any) -> AsyncIterator[bytes]:
        self.callers.append(LOGGED_IN.get())
        self.streams += 1
        try:
            yield b"first"
            await asyncio.Event().wait()
        finally:
            self.streams -= 1


class ClockAhead(SystemClock):
    """The system clock, which a test can set ahead."""

    ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


ELSEWHERE = "/klamm.v1.Admin/DescribeCluster"
"""The path of a call that the server does not have."""
CONTROLLER_OUT = Listener("OUT", SecurityProtocol.GRPC, "controller", 9_093)
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


class World:
    """A server with a listener that requires logins."""

    def __init__(self, tls: ServerTls | None = None, **settings: str) -> None:
        given = {"sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN"}
        given |= {name.replace("_", "."): value for name, value in settings.items()}
        given.setdefault("connection.failed.authentication.delay.ms", "0")
        self.clock = ClockAhead()
        self.logins = Logins({"OUT": ListenerSaslSettings.parse(given)}, self.clock, random.SystemRandom())
        self.logins.on_image(image(**{USER: PASSWORD}))
        self.broker = BrokerApi()
        self.tls = tls
        self.port = 0

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[World]:
        rpc = RpcServer(max_message_bytes=2**20, max_concurrent_rpcs=100)
        rpc.add_service(BROKER, self.broker)
        rpc.add_role(Role.BROKER, KnownServers(MetadataImage.empty, lambda: [[CONTROLLER_OUT]]))
        self.port = await rpc.start("localhost", 0, "OUT", self.tls, self.logins.at("OUT"))
        try:
            yield self
        finally:
            await rpc.stop(0)
            self.logins.close()

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    def dialling(self, **settings: Any) -> Connection:
        """Returns a connection. `settings` have underscores for dots."""
        given = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
        given |= {name.replace("_", "."): value for name, value in settings.items()}
        config = ClientConfig.parse({name: value for name, value in given.items() if value is not None})
        transport = GrpcTransport(tls=client_tls(config), sasl=client_sasl(config))
        return Connection(transport, self.address, SERVERS, timeout_ms=TIMEOUT_MS)


async def describe(connection: Connection) -> None:
    await connection.stub(SERVER).describe_server(REQUEST)


async def refused(connection: Connection) -> BrokerError:
    async with connection:
        with pytest.raises(BrokerError) as failed:
            await describe(connection)
    assert PASSWORD not in str(failed.value)
    return failed.value


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
def test_a_client_with_the_right_password_calls_as_its_user(mechanism: str) -> None:
    async def scenario() -> None:
        async with World().serving() as world, world.dialling(sasl_mechanism=mechanism) as connection:
            await connection.stub(BROKER).list_offsets(ListOffsetsRequest())
            assert world.broker.callers == [f"User:{USER}"]

    asyncio.run(scenario())


def test_a_login_over_tls(tmp_path: Path) -> None:
    async def scenario() -> None:
        stores = write_stores(tmp_path / "server", server())
        trusted = write_stores(tmp_path / "client", client()).truststore
        world = World(ServerTls("OUT", ListenerTlsSettings.parse(stores.settings())))
        over_tls = {"security_protocol": "SASL_SSL", "ssl_truststore_location": str(trusted)}
        async with world.serving(), world.dialling(**over_tls) as connection:
            await describe(connection)

    asyncio.run(scenario())


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
def test_a_wrong_password_and_an_unknown_user_get_the_same_error(mechanism: str) -> None:
    async def scenario() -> None:
        async with World().serving() as world:
            wrong = await refused(world.dialling(sasl_mechanism=mechanism, sasl_password="guess"))
            unknown = await refused(world.dialling(sasl_mechanism=mechanism, sasl_username="mallory"))
            assert isinstance(wrong, SaslAuthenticationError)
            assert isinstance(wrong, AuthenticationError)
            assert not wrong.retriable
            assert str(wrong) == str(unknown)
            assert "invalid credentials with SASL mechanism" in str(wrong)

    asyncio.run(scenario())


def test_the_error_for_a_disabled_sasl_mechanism_lists_the_enabled_ones() -> None:
    async def scenario() -> None:
        async with World(sasl_enabled_mechanisms="SCRAM-SHA-512").serving() as world:
            error = await refused(world.dialling())
            assert error.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
            assert "'SCRAM-SHA-256' is not enabled, expected one of SCRAM-SHA-512" in str(error)

    asyncio.run(scenario())


def test_the_error_for_a_client_without_a_login_says_how_to_log_in() -> None:
    async def scenario() -> None:
        async with World().serving() as world:
            error = await refused(world.dialling(security_protocol="PLAINTEXT"))
            assert isinstance(error, SaslAuthenticationError)
            assert "logs in first (security.protocol=SASL_PLAINTEXT or SASL_SSL)" in str(error)

    asyncio.run(scenario())


def test_a_login_before_the_server_knows_the_users_fails_with_a_retriable_error() -> None:
    async def scenario() -> None:
        world = World()
        world.logins._users.are_known = False
        async with world.serving():
            assert (await refused(world.dialling())).retriable

    asyncio.run(scenario())


async def _unary(channel: aio.Channel, path: str, request: bytes = b"", **options: Any) -> Any:
    return await channel.unary_unary(path)(request, timeout=patience(), **options)


def test_every_call_except_health_is_refused_without_a_login_before_its_request_is_read() -> None:
    async def scenario() -> None:
        async with World().serving() as world, aio.insecure_channel(world.address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            await health.Check(health_pb2.HealthCheckRequest(service="liveness"), timeout=patience())
            for said in (None, (("authorization", "Klamm AAAA"),), (("authorization", "Bearer x"),)):
                for path in (*(method.path for method in (*BROKER.methods, *SERVER.methods)), REFLECTION, ELSEWHERE):
                    # The call never sends a request, so the server waits for none and none is in flight when the call
                    # ends.
                    call = channel.stream_stream(path)(metadata=said, timeout=patience())
                    with pytest.raises(aio.AioRpcError) as failed:
                        await call.read()
                    assert failed.value.code() is grpc.StatusCode.UNAUTHENTICATED, path
            assert not world.broker.callers

    asyncio.run(scenario())


def test_a_client_that_has_logged_in_learns_where_another_service_is() -> None:
    async def scenario() -> None:
        async with World().serving() as world, world.dialling() as connection:
            with pytest.raises(BrokerError, match=r"call a controller \(controller:9093\)"):
                await connection.stub(ADMIN).describe_cluster(DescribeClusterRequest())

    asyncio.run(scenario())


def test_a_stolen_session_is_refused_on_another_connection() -> None:
    async def scenario() -> None:
        async with World().serving() as world:
            config = ClientConfig.parse(
                {
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": "PLAIN",
                    "sasl.username": USER,
                    "sasl.password": PASSWORD,
                }
            )
            source = client_sasl(config)
            assert source is not None
            owner = GrpcTransport().channel(world.address, SERVERS)
            stolen = (await log_in(owner, source, timeout_ms=TIMEOUT_MS)).authorization
            CALL_METADATA.set((("authorization", stolen),))
            (method,) = SERVER.methods
            assert (await owner.unary(method)(REQUEST, TIMEOUT_MS)).version
            thief = Connection(GrpcTransport(), world.address, SERVERS, timeout_ms=TIMEOUT_MS)
            async with thief:
                with pytest.raises(SaslAuthenticationError):
                    await describe(thief)
            async with aio.insecure_channel(world.address) as channel:
                for path in (REFLECTION, ELSEWHERE):
                    # The call sends no request. Otherwise it may end with INTERNAL while its request is in flight.
                    asked = channel.stream_stream(path)(metadata=(("authorization", stolen),), timeout=patience())
                    with pytest.raises(aio.AioRpcError) as failed:
                        await asked.read()
                    assert failed.value.code() is grpc.StatusCode.UNAUTHENTICATED
            await owner.close()

    asyncio.run(scenario())


def test_an_expired_session_is_renewed_while_calls_are_in_flight() -> None:
    async def scenario() -> None:
        async with World(connections_max_reauth_ms=str(LIFETIME_MS)).serving() as world, world.dialling() as connection:
            for _ in range(10):
                # The client repeats a call only once, so no call may be in its second attempt when the session ends.
                await describe(connection)
                calls = [asyncio.create_task(describe(connection)) for _ in range(20)]
                await calls[0]
                world.clock.ahead_ms += LIFETIME_MS
                await asyncio.gather(*calls)

    asyncio.run(scenario())


def test_strangers_that_watch_the_health_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_services, "LASTING_MAX", 4)

    async def scenario() -> None:
        async with (
            World().serving() as world,
            world.dialling() as connection,
            aio.insecure_channel(f"localhost:{world.port}") as stranger,
        ):
            health = health_pb2_grpc.HealthStub(stranger)
            watching = []
            # One after the other, because the server ends a request if it reads more than two at a time.
            for _ in range(3):
                watching.append(health.Watch(health_pb2.HealthCheckRequest()))
                assert await watching[-1].read()
            further = health.Watch(health_pb2.HealthCheckRequest())
            with pytest.raises(aio.AioRpcError) as refused:
                await further.read()
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            await describe(connection)
            watching[0].cancel()

            async def is_accepted() -> bool:
                again = health.Watch(health_pb2.HealthCheckRequest())
                with contextlib.suppress(aio.AioRpcError):
                    return bool(await again.read())
                return False

            await until(is_accepted)

    asyncio.run(scenario())


async def begun(connection: Connection, name: str) -> Callable[[], Awaitable[Any]]:
    """Starts a stream and reads its only answer. Returns the function that reads the next one."""
    stub = connection.stub(BROKER)
    if name == "fetch_stream":
        answers = stub.fetch_stream(FetchRequest())
        assert await anext(answers) == b"first"
        return answers.__anext__
    stream = stub.produce_stream()
    await stream.write(b"")
    assert await stream.read() is not None
    return stream.read


@pytest.mark.parametrize("name", ["fetch_stream", "produce_stream"])
@pytest.mark.parametrize("end", ["expired", "changed", "deleted"])
def test_a_waiting_stream_ends_when_its_session_ends(name: str, end: str) -> None:
    async def scenario() -> None:
        async with World(connections_max_reauth_ms=str(LIFETIME_MS)).serving() as world, world.dialling() as connection:
            read = await begun(connection, name)
            if end == "expired":
                world.clock.ahead_ms += LIFETIME_MS
            else:
                world.logins.on_image(image(**({USER: "other"} if end == "changed" else {})))
            with pytest.raises(SaslAuthenticationError):
                await read()
            assert world.broker.callers == [f"User:{USER}"]
            await until(lambda: world.broker.streams == 0)
            # If the credential has changed, the old password cannot log in again.
            if end != "expired":
                with pytest.raises(SaslAuthenticationError):
                    await describe(connection)

    asyncio.run(scenario())


class Issuer:
    """An issuer of tokens whose public key is in a file."""

    def __init__(self, directory: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        algorithm = jwt.get_algorithm_by_name("ES256")
        key = {**json.loads(algorithm.to_jwk(self._key.public_key())), "kid": "k"}
        self._file = directory / "jwks.json"
        self._file.write_text(json.dumps({"keys": [key]}))

    def settings(self) -> dict[str, str]:
        return {
            "sasl_enabled_mechanisms": "OAUTHBEARER",
            "sasl_oauthbearer_jwks_endpoint_url": self._file.as_uri(),
            "sasl_oauthbearer_expected_audience": "klamm",
            "sasl_oauthbearer_expected_issuer": "https://issuer",
        }

    def token(self, *, lifetime_s: int = 600, audience: str = "klamm") -> str:
        now_s = int(time.time())
        claims = {"iss": "https://issuer", "aud": audience, "sub": USER, "iat": now_s, "exp": now_s + lifetime_s}
        return jwt.encode(claims, self._key, algorithm="ES256", headers={"kid": "k"})


def test_a_client_logs_in_with_an_oauth_token(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)

    def dialling(world: World, give: Callable[[], str]) -> Connection:
        return world.dialling(
            sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token_callback=give, sasl_username=None, sasl_password=None
        )

    async def scenario() -> None:
        async with World(**issuer.settings()).serving() as world:
            async with dialling(world, issuer.token) as connection:
                await describe(connection)
            error = await refused(dialling(world, lambda: issuer.token(audience="others")))
            assert isinstance(error, SaslAuthenticationError)

    asyncio.run(scenario())


def test_calls_may_carry_a_bearer_token_without_a_login(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    (method,) = SERVER.methods

    async def scenario() -> None:
        async with World(**issuer.settings()).serving() as world:
            good = (("authorization", f"Bearer {issuer.token()}"),)
            for _ in range(2):
                # Other gRPC clients make such calls from any connection.
                async with aio.insecure_channel(world.address) as channel:
                    await asyncio.gather(*(_unary(channel, method.path, metadata=good) for _ in range(5)))
            async with aio.insecure_channel(world.address) as channel:
                for bad in ("Bearer", "Bearer ", "Bearer x.y.z", f"Bearer {issuer.token(audience='others')}"):
                    with pytest.raises(aio.AioRpcError) as failed:
                        await _unary(channel, method.path, metadata=(("authorization", bad),))
                    assert failed.value.code() is grpc.StatusCode.UNAUTHENTICATED, bad

    asyncio.run(scenario())


def test_a_stream_whose_token_is_new_is_served_after_the_login(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    paths = {method.name: method.path for method in BROKER.methods}

    async def scenario() -> None:
        async with World(**issuer.settings()).serving() as world, aio.insecure_channel(world.address) as channel:
            for name, request in (("produce_stream", b"batch"), ("fetch_stream", b"")):
                said = (("authorization", f"Bearer {issuer.token(lifetime_s=600 + len(name))}"),)
                call = channel.stream_stream(paths[name])(metadata=said, timeout=patience())
                await call.write(request)
                assert await call.read() is not None
                call.cancel()
            # No call without a request is served, even with a right token.
            said = (("authorization", f"Bearer {issuer.token(lifetime_s=500)}"),)
            call = channel.stream_stream(paths["list_offsets"])(metadata=said, timeout=patience())
            await call.done_writing()
            with pytest.raises(aio.AioRpcError) as failed:
                await call.read()
            assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert world.broker.callers == [f"User:{USER}"] * 2

    asyncio.run(scenario())


def test_a_login_is_answered_without_its_request_being_read() -> None:
    async def scenario() -> None:
        async with World().serving() as world, aio.insecure_channel(world.address) as channel:
            handshake, _ = AUTHENTICATION.methods
            said = ((REQUEST_METADATA, SaslHandshakeRequest(mechanism="PLAIN").SerializeToString()),)
            # The call never sends a request.
            call = channel.stream_stream(handshake.path, response_deserializer=handshake.response_deserializer)(
                metadata=said, timeout=patience()
            )
            assert (await call.read()).handshake_id

    asyncio.run(scenario())


def test_a_long_login_message_reaches_the_server_and_a_longer_one_is_refused_by_the_client() -> None:
    async def scenario() -> None:
        async with World().serving() as world:
            for size, expected in ((40_000, "invalid credentials"), (50_000, "expected at most 40960 over gRPC")):
                error = await refused(world.dialling(sasl_mechanism="PLAIN", sasl_password="x" * size))
                assert isinstance(error, SaslAuthenticationError)
                assert expected in str(error)

    asyncio.run(scenario())


def test_health_checks_that_send_their_requests_slowly_end() -> None:
    async def scenario() -> None:
        async with World().serving() as world, aio.insecure_channel(world.address) as channel:
            check = channel.stream_stream("/grpc.health.v1.Health/Check")
            slow = [check(timeout=patience()) for _ in range(10)]
            codes = [asyncio.ensure_future(each.code()) for each in slow]
            # The server still reads the requests of the last ones.
            for ended in itertools.islice(asyncio.as_completed(codes), len(slow) - before_login.READING_MAX):
                assert await ended is grpc.StatusCode.RESOURCE_EXHAUSTED
            health = health_pb2_grpc.HealthStub(channel)
            answer = await health.Check(health_pb2.HealthCheckRequest(service="liveness"), timeout=patience())
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            for large in (b"\x0a" + b"x" * 1_024, b"\xff"):
                with pytest.raises(aio.AioRpcError) as failed:
                    await _unary(channel, "/grpc.health.v1.Health/Watch", large)
                assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    asyncio.run(scenario())
