"""Tests gRPC with TLS over real sockets: accepted and refused peers, their errors, and certificates that change."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from grpc.experimental import session_cache

from klamm import Admin, Consumer, Producer, TopicPartition
from klamm.config import ClientConfig
from klamm.errors import EXCEPTIONS, ConfigError, ErrorCode, KlammError, SslAuthenticationError
from klamm.rpc import handshakes
from klamm.rpc.client_tls import client_tls
from klamm.rpc.connection import Connection
from klamm.rpc.grpc_transport import GrpcTransport
from klamm.rpc.options import SERVERS
from klamm.security.dev_certificates import DevCa, SignedKey
from klamm.security.tls_settings import ListenerTlsSettings
from klamm.wire.v1.common_pb2 import DescribeServerRequest
from klamm.wire.v1.common_rpc import SERVER
from klamm_server.rpc import grpc_server
from klamm_server.rpc.grpc_server import GrpcServerTransport
from klamm_server.rpc.server import RpcServer
from klamm_server.security.server_tls import LOADED, REFUSED, RELOADS, ServerTls
from tests.support.broker_harness import LONG_MS
from tests.support.certificates import ca, client, replace, server, write_stores
from tests.support.waiting import patience

FOREIGN = "Foreign CA"
REQUEST = DescribeServerRequest()
NetworkError = EXCEPTIONS[ErrorCode.NETWORK_EXCEPTION]


@contextlib.asynccontextmanager
async def serving(tls: ServerTls | None, host: str = "localhost") -> AsyncIterator[int]:
    """Yields the port of a server that answers DescribeServer."""
    rpc = RpcServer(max_message_bytes=2**20, max_concurrent_rpcs=100)
    port = await rpc.start(host, 0, tls=tls)
    try:
        yield port
    finally:
        await rpc.stop(0)


def server_tls(directory: Path, signed: SignedKey, **settings: str) -> ServerTls:
    stores = write_stores(directory / "server", signed)
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return ServerTls("OUT", ListenerTlsSettings.parse({**stores.settings(), **given}))


def client_settings(directory: Path, signed: SignedKey | None = None, trusts: DevCa | None = None) -> dict[str, str]:
    stores = write_stores(directory / "client", signed or client(), trusts=trusts)
    names = stores.settings() if signed is not None else {"ssl.truststore.location": str(stores.truststore)}
    return {"security.protocol": "SSL", "ssl.reload.interval.ms": "100", **names}


def dialling(settings: dict[str, str], address: str) -> Connection:
    config = ClientConfig.parse(settings)
    return Connection(GrpcTransport(tls=client_tls(config)), address, SERVERS, timeout_ms=int(patience() * 1_000))


async def ask(settings: dict[str, str], address: str) -> None:
    async with dialling(settings, address) as connection:
        await connection.stub(SERVER).describe_server(REQUEST)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
@pytest.mark.parametrize("auth", ["none", "required"])
def test_a_client_and_a_server_with_certificates_of_one_ca_connect(tmp_path: Path, host: str, auth: str) -> None:
    async def scenario() -> None:
        async with serving(server_tls(tmp_path, server(), ssl_client_auth=auth)) as port:
            await ask(client_settings(tmp_path, client()), f"{host}:{port}")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("signed", "told"),
    [
        (server(of=FOREIGN), handshakes.FOREIGN_CA),
        (server("far", "far.example"), handshakes.OTHER_HOST),
        (client(), "its certificate is not accepted: unsupported certificate purpose"),
    ],
)
def test_a_server_with_a_wrong_certificate_is_refused_with_the_reason(
    tmp_path: Path, signed: SignedKey, told: str
) -> None:
    async def scenario() -> None:
        async with serving(server_tls(tmp_path, signed)) as port:
            with pytest.raises(SslAuthenticationError) as refused:
                await ask(client_settings(tmp_path), f"localhost:{port}")
            assert str(refused.value) == f"describe_server at localhost:{port}: {told}"
            assert not refused.value.retriable

    asyncio.run(scenario())


def test_a_server_certificate_that_expired_while_the_server_ran_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        tls = server_tls(tmp_path, server())
        # A server does not load an expired certificate, but a loaded certificate can expire.
        tls._watched.material = _material(server(valid_days=-1))
        async with serving(tls) as port:
            with pytest.raises(SslAuthenticationError, match=handshakes.EXPIRED):
                await ask(client_settings(tmp_path), f"localhost:{port}")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("signed", "told"),
    [(None, handshakes.WANTS_CERTIFICATE), (client(of=FOREIGN), handshakes.REFUSES_CERTIFICATE)],
)
def test_a_client_without_a_trusted_certificate_is_refused_with_the_reason(
    tmp_path: Path, signed: SignedKey | None, told: str
) -> None:
    async def scenario() -> None:
        async with serving(server_tls(tmp_path, server(), ssl_client_auth="required")) as port:
            with pytest.raises(SslAuthenticationError) as refused:
                await ask(client_settings(tmp_path, signed), f"localhost:{port}")
            assert told in str(refused.value)

    asyncio.run(scenario())


def test_tls_to_a_plain_port_and_plain_text_to_a_tls_port_are_named_in_the_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(None) as port:
            with pytest.raises(SslAuthenticationError, match="it does not speak TLS"):
                await ask(client_settings(tmp_path), f"localhost:{port}")
        async with serving(server_tls(tmp_path, server())) as port:
            with pytest.raises(NetworkError, match=handshakes.SPEAKS_TLS):
                await ask({}, f"localhost:{port}")

    asyncio.run(scenario())


def test_a_tls_connection_to_an_absent_server_fails_with_a_retriable_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            with pytest.raises(NetworkError) as failed:
                await ask(client_settings(tmp_path), f"127.0.0.1:{bound.getsockname()[1]}")
            assert failed.value.retriable

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("make", "extra", "call"),
    [
        (Admin, {}, lambda admin: admin.describe_cluster(timeout_ms=LONG_MS)),
        (Producer, {}, lambda producer: producer.send("t", b"v").result(timeout=patience())),
        (Consumer, {"group.id": "g"}, lambda consumer: (consumer.subscribe(["t"]), consumer.poll(LONG_MS))),
        (Consumer, {}, lambda consumer: (consumer.assign([TopicPartition("t", 0)]), consumer.poll(LONG_MS))),
        (Consumer, {}, lambda consumer: consumer.partitions_for("t")),
    ],
    ids=["admin", "producer", "subscribed", "assigned", "asking"],
)
def test_no_client_retries_after_a_tls_authentication_error(
    tmp_path: Path, make: Callable[..., Any], extra: dict[str, str], call: Callable[[Any], object]
) -> None:
    def use(port: int) -> None:
        settings = {**client_settings(tmp_path), "bootstrap.servers": f"localhost:{port}", **extra}
        with make(settings) as used, pytest.raises(SslAuthenticationError):
            call(used)

    async def scenario() -> None:
        async with serving(server_tls(tmp_path, server(of=FOREIGN))) as port:
            await asyncio.to_thread(use, port)

    asyncio.run(scenario())


def test_calls_go_on_while_all_certificates_change(tmp_path: Path) -> None:
    """The CA changes as well.

    First both ends trust the old and the new CA, then both show certificates of the new one.
    """

    async def scenario() -> None:
        tls = server_tls(tmp_path, server(), ssl_client_auth="required")
        settings = client_settings(tmp_path, client())
        async with serving(tls) as port, dialling(settings, f"localhost:{port}") as connection:
            calls = asyncio.create_task(_call_until_told(connection))
            both = ca().signed.certificate_pem + ca("New CA").signed.certificate_pem
            for end in ("server", "client"):
                replace(tmp_path / end / "truststore.pem", both)
            await _seen(tls, 1)
            replace(tmp_path / "server" / "keystore.pem", server(of="New CA").keystore_pem)
            await _seen(tls, 2)
            replace(tmp_path / "client" / "keystore.pem", client(of="New CA").keystore_pem)
            for end in ("server", "client"):
                replace(tmp_path / end / "truststore.pem", ca("New CA").signed.certificate_pem)
            await _seen(tls, 3)
            await asyncio.sleep(0.3)  # the client checks its files in this time
            calls.cancel()
            assert await calls > 0
            with pytest.raises(SslAuthenticationError):
                await ask(client_settings(tmp_path / "old", client()), f"localhost:{port}")

    asyncio.run(scenario())


def test_an_invalid_new_certificate_leaves_the_current_one_in_use(tmp_path: Path) -> None:
    async def scenario() -> None:
        tls = server_tls(tmp_path, server())
        refused, loaded = RELOADS.labels("OUT", REFUSED), RELOADS.labels("OUT", LOADED)
        before = refused.value, loaded.value
        async with serving(tls) as port:
            for bad in (
                server(valid_days=-1).keystore_pem,
                server().key_pem + client().certificate_pem,
                server("other").keystore_pem,
                server("server", "localhost").keystore_pem,
                "nothing",
            ):
                replace(tmp_path / "server" / "keystore.pem", bad)
                tls.refresh()
                tls.refresh()
                await ask(client_settings(tmp_path), f"localhost:{port}")
            assert (refused.value - before[0], loaded.value - before[1], tls.version) == (5, 0, 0)
            replace(tmp_path / "server" / "keystore.pem", server(valid_days=30).keystore_pem)
            tls.refresh()
            assert (loaded.value - before[1], tls.version) == (1, 1)
            await ask(client_settings(tmp_path), f"localhost:{port}")

    asyncio.run(scenario())


def test_an_incomplete_handshake_is_closed_after_the_handshake_timeout(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(server_tls(tmp_path, server(), ssl_handshake_timeout_ms="300")) as port:
            began = time.monotonic()
            reader, writer = await asyncio.open_connection("localhost", port)
            writer.write(b"\x16\x03\x01")
            assert await asyncio.wait_for(reader.read(), patience()) == b""
            assert time.monotonic() - began > 0.2
            writer.close()

    asyncio.run(scenario())


def test_a_resumed_tls_session_is_refused_where_client_certificates_are_required(tmp_path: Path) -> None:
    """A resumed session skips the check of the certificate."""
    (method,) = (method for method in SERVER.methods if method.name == "describe_server")
    shown = client()
    credentials = grpc.ssl_channel_credentials(
        ca().signed.certificate_pem.encode(), shown.key_pem.encode(), shown.certificate_pem.encode()
    )

    async def code_of_call(port: int, sessions: object) -> grpc.StatusCode:
        options = [("grpc.ssl_session_cache", sessions), ("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.secure_channel(f"localhost:{port}", credentials, options) as channel:
            call = channel.unary_unary(method.path, method.request_serializer, method.response_deserializer)(REQUEST)
            return await call.code()

    async def scenario() -> None:
        for auth, of_resumed in (("required", grpc.StatusCode.UNAUTHENTICATED), ("none", grpc.StatusCode.OK)):
            sessions = session_cache.ssl_session_cache_lru(1)
            async with serving(server_tls(tmp_path, server(), ssl_client_auth=auth)) as port:
                assert await code_of_call(port, sessions) is grpc.StatusCode.OK
                assert await code_of_call(port, sessions) is of_resumed

    asyncio.run(scenario())


def test_calls_of_a_connection_end_with_its_clients_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        settings = client_settings(tmp_path, client(valid_days=2))
        async with (
            serving(server_tls(tmp_path, server(), ssl_client_auth="required")) as port,
            dialling(settings, f"localhost:{port}") as connection,
        ):
            await connection.stub(SERVER).describe_server(REQUEST)
            now_s = time.time()
            later = SimpleNamespace(time=lambda: now_s + 3 * 86_400, sleep=time.sleep)
            monkeypatch.setattr(grpc_server, "time", later)
            with pytest.raises(KlammError, match="certificate has expired"):
                await connection.stub(SERVER).describe_server(REQUEST)

    asyncio.run(scenario())


def _shown(host: str, port: int) -> bytes:
    """Returns the certificate that a server shows."""
    context = ssl.create_default_context(cadata=ca().signed.certificate_pem)
    context.set_alpn_protocols(["h2"])
    with context.wrap_socket(
        socket.create_connection((host, port), patience()), server_hostname="localhost"
    ) as secured:
        return secured.getpeercert(binary_form=True) or b""


@pytest.mark.parametrize("auth", ["none", "required"])
def test_a_new_certificate_is_used_at_every_address_of_the_listener(
    tmp_path: Path, auth: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = {"::1": socket.AF_INET6, "127.0.0.1": socket.AF_INET}
    found = [(family, socket.SOCK_STREAM, 6, "", (host, 0)) for host, family in hosts.items()]
    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *rest, **named: found if host == "both" else real(host, *rest, **named)
    )

    async def scenario() -> None:
        tls = server_tls(tmp_path, server(), ssl_client_auth=auth)
        async with serving(tls, "both") as port:
            before = {await asyncio.to_thread(_shown, host, port) for host in hosts}
            replace(tmp_path / "server" / "keystore.pem", server(valid_days=30).keystore_pem)
            tls.refresh()
            after = {await asyncio.to_thread(_shown, host, port) for host in hosts}
        assert (len(before), len(after)) == (1, 1)
        assert before != after

    asyncio.run(scenario())


def test_tls_settings_that_grpc_does_not_support_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        for name, value in (
            ("ssl_client_auth", "requested"),
            ("ssl_enabled_protocols", "TLSv1.3"),
            ("ssl_cipher_suites", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
        ):
            with pytest.raises(ConfigError, match=rf"^{name.replace('_', '.')}={value}: gRPC "):
                async with serving(server_tls(tmp_path, server(), **{name: value})):
                    pass

    asyncio.run(scenario())


def test_between_servers_a_refused_certificate_is_a_network_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        stores = write_stores(tmp_path / "mine", server())
        settings = ListenerTlsSettings.parse({**stores.settings(), "ssl.client.auth": "required"})
        mine = ServerTls("IN", settings, between_servers=True)
        async with serving(server_tls(tmp_path, server(of=FOREIGN))) as port:
            connection = Connection(GrpcServerTransport(tls=mine), f"localhost:{port}", SERVERS)
            async with connection:
                with pytest.raises(NetworkError, match="comes from a CA that this client does not trust"):
                    await connection.stub(SERVER).describe_server(REQUEST)
        async with (
            serving(mine) as port,
            Connection(GrpcServerTransport(tls=mine), f"localhost:{port}", SERVERS) as connection,
        ):
            await connection.stub(SERVER).describe_server(REQUEST)

    asyncio.run(scenario())


def _material(signed: SignedKey):
    from datetime import timedelta

    from klamm.security.material import load_material
    from klamm.security.tls_settings import TlsSettings
    from klamm.setting import parse
    from tests.support.certificates import NOW

    given = {"ssl.keystore.key": signed.key_pem, "ssl.keystore.certificate.chain": signed.certificate_pem}
    return load_material(TlsSettings(**parse(TlsSettings, given)), now=NOW - timedelta(days=1, minutes=2))


async def _call_until_told(connection: Connection) -> int:
    """Repeats a call until cancelled, and returns how many calls were answered. Every call must succeed."""
    stub, count = connection.stub(SERVER), 0
    try:
        while True:
            await stub.describe_server(REQUEST)
            count += 1
            await asyncio.sleep(0.002)
    except asyncio.CancelledError:
        return count


async def _seen(tls: ServerTls, version: int) -> None:
    await asyncio.sleep(0.25)  # the client checks its files in this time
    tls.refresh()
    assert tls.version == version
