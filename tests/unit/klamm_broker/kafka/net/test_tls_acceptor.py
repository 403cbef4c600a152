"""Tests a Kafka listener with TLS: successful and failed handshakes, and the principals of clients."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from klamm.security.dev_certificates import SignedKey
from klamm_broker.kafka.net import tls_acceptor
from tests.support import certificates
from tests.support.kafka_listener import ServedListener, answer_to, echo, echo_by_turns, frame
from tests.support.tls_listener import Run, both_loops, opened, refused
from tests.support.tls_world import TlsWorld
from tests.support.waiting import until


@pytest.fixture
def world(tmp_path: Path) -> TlsWorld:
    return TlsWorld(tmp_path)


@both_loops
def test_tls_requests_are_answered_in_order_and_their_principal_is_anonymous(world: TlsWorld, run: Run) -> None:
    async def scenario() -> None:
        async with opened(world.clients(), handle=echo_by_turns) as served:
            reader, writer = await served.connect(world.dialler())
            bodies = [b"%d" % number * (number * 400) for number in range(1, 200)]
            writer.write(b"".join(frame(number, body) for number, body in enumerate(bodies, 1)))
            for number, body in enumerate(bodies, 1):
                assert await answer_to(reader) == (number, body)
            (connection,) = served.listener.connections
            assert connection.principal == "User:ANONYMOUS"
            assert connection.expires_ms is None
            writer.close()

    run(scenario())


@both_loops
def test_a_client_has_its_certificates_principal_and_is_disconnected_when_it_expires(world: TlsWorld, run: Run) -> None:
    me = certificates.client("alice")

    async def scenario() -> None:
        tls = world.clients(rules="RULE:^CN=([^,]+).*$/$1/U", ssl_client_auth="required")
        async with opened(tls) as served:
            reader, writer = await served.connect(world.dialler(me))
            writer.write(frame(1, b"a"))
            assert await answer_to(reader) == (1, b"a")
            (connection,) = served.listener.connections
            assert connection.principal == "User:ALICE"
            ends_ms = round(me.certificate.not_valid_after_utc.timestamp() * 1000)
            assert connection.expires_ms == ends_ms
            served.listener.close_expired_connections(ends_ms - 1)
            writer.write(frame(2, b"b"))
            assert await answer_to(reader) == (2, b"b")
            served.listener.close_expired_connections(ends_ms)
            with pytest.raises((asyncio.IncompleteReadError, OSError)):
                await reader.readexactly(1)
            writer.close()

    run(scenario())


@both_loops
def test_a_certificate_that_matches_no_mapping_rule_is_refused(
    world: TlsWorld, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        tls = world.clients(rules="RULE:^OU=none$/x/", ssl_client_auth="required")
        async with opened(tls, connections_max=1) as served:
            for _ in range(2):
                assert await refused(served, world.dialler(certificates.client("alice")))
                await until(lambda: len(served.listener) == 0)

    run(scenario())
    assert "no rule of ssl.principal.mapping.rules matches the certificate's name 'CN=alice" in caplog.text


@both_loops
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize(
    ("shown", "alert"),
    [
        (None, {"TLSv1.2": "HANDSHAKE_FAILURE", "TLSv1.3": "CERTIFICATE_REQUIRED"}),
        (certificates.client("eve", of="Foreign CA"), dict.fromkeys(["TLSv1.2", "TLSv1.3"], "UNKNOWN_CA")),
        (certificates.client("late", valid_days=0), dict.fromkeys(["TLSv1.2", "TLSv1.3"], "CERTIFICATE_EXPIRED")),
    ],
    ids=["none", "foreign", "expired"],
)
def test_an_alert_tells_a_client_why_its_handshake_failed(
    world: TlsWorld, run: Run, version: str, shown: SignedKey | None, alert: dict[str, str]
) -> None:
    async def dial(served: ServedListener) -> None:
        reader, _ = await served.connect(world.dialler(shown))
        # In TLS 1.3 a client completes its handshake before the server does, so it learns of a refusal later.
        await reader.readexactly(1)

    async def scenario() -> None:
        tls = world.clients(ssl_client_auth="required", ssl_enabled_protocols=version)
        async with opened(tls) as served:
            with pytest.raises(ssl.SSLError) as raised:
                await dial(served)
        assert alert[version] in (raised.value.reason or "")

    run(scenario())


@contextlib.asynccontextmanager
async def alerted(world: TlsWorld, served: ServedListener) -> AsyncIterator[socket.socket]:
    """Yields a client without a certificate that has read the server's alert and the end of the stream."""
    loop = asyncio.get_running_loop()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = world.dialler().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", served.port))
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await loop.sock_sendall(client, outgoing.read())
                incoming.write(await loop.sock_recv(client, 65_536))
        await loop.sock_sendall(client, outgoing.read())
        while received := await loop.sock_recv(client, 65_536):
            incoming.write(received)
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
            tls.read()
        yield client


@both_loops
def test_a_client_that_writes_after_its_alert_is_not_reset(world: TlsWorld, run: Run) -> None:
    """If the server closed too early, its kernel would reset the connection after the first write."""

    async def scenario() -> None:
        async with opened(world.clients(ssl_client_auth="required")) as served, alerted(world, served) as client:
            for _ in range(3):
                client.send(b"a")
            client.close()
            await until(lambda: not served.listener.handshakes_under_way)

    run(scenario())


@both_loops
@pytest.mark.parametrize(("bound", "value"), [("ALERT_S", 0.01), ("ALERT_BYTES", 3)])
def test_a_client_that_stays_after_its_alert_is_cut_off(
    world: TlsWorld, run: Run, bound: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_acceptor, "ALERT_S", 1_000.0)
    monkeypatch.setattr(tls_acceptor, bound, value)

    async def scenario() -> None:
        async with opened(world.clients(ssl_client_auth="required")) as served, alerted(world, served) as client:
            with contextlib.suppress(OSError):
                client.send(b"abcdef")
            await until(lambda: not served.listener.handshakes_under_way)

    run(scenario())


@both_loops
@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        (None, "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        (certificates.client("eve", of="Foreign CA"), "CERTIFICATE_VERIFY_FAILED: unable to get local issuer"),
        (certificates.client("late", valid_days=0), "CERTIFICATE_VERIFY_FAILED: certificate has expired"),
    ],
    ids=["none", "foreign", "expired"],
)
def test_a_wrong_certificate_is_logged_once_and_takes_no_connection_slot(
    world: TlsWorld, run: Run, shown: SignedKey | None, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with opened(world.clients(ssl_client_auth="required"), connections_max=1) as served:
            for _ in range(3):
                assert await refused(served, world.dialler(shown))
                await until(lambda: not served.listener.handshakes_under_way)
            reader, writer = await served.connect(world.dialler(certificates.client()))
            writer.write(frame(1, b"a"))
            assert await answer_to(reader) == (1, b"a")
            writer.close()

    run(scenario())
    told = [record.getMessage() for record in caplog.records if "handshake" in record.getMessage()]
    assert len(told) == 1
    assert re.search(
        rf"a TLS handshake of 127\.0\.0\.1 failed at the Kafka listener 127\.0\.0\.1:\d+: {reason}", told[0]
    )


@both_loops
@pytest.mark.parametrize(
    ("first_bytes", "protocol"),
    [(frame(1, b"hello"), "a client without TLS"), (b"GET / HTTP/1.1\r\n\r\n", "an HTTP client")],
    ids=["kafka", "http"],
)
def test_plaintext_at_a_tls_listener_gets_no_answer_and_is_logged_with_the_port(
    world: TlsWorld, run: Run, first_bytes: bytes, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with opened(world.clients(), connections_max=1) as served:
            for _ in range(2):
                reader, writer = await served.connect()
                writer.write(first_bytes)
                with contextlib.suppress(ConnectionError):
                    # The client receives at most a TLS alert.
                    assert len(await reader.read()) <= 7
                writer.close()
                await until(lambda: not served.listener.handshakes_under_way)

    run(scenario())
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert re.fullmatch(
        rf"{protocol} from 127\.0\.0\.1 connected to the Kafka listener 127\.0\.0\.1:\d+: the listener accepts TLS only"
        r" \(security\.protocol=SSL\)",
        told[0],
    )


@both_loops
def test_no_tls_handshake_begins_beyond_max_connections(world: TlsWorld, run: Run) -> None:
    tls = world.clients()
    taken = 0

    def context() -> ssl.SSLContext:
        nonlocal taken
        taken += 1
        return current()

    current, tls.context = tls.context, context

    async def scenario() -> None:
        async with opened(tls, connections_max=1) as served:
            reader, writer = await served.connect(world.dialler())
            writer.write(frame(1, b"a"))
            assert await answer_to(reader) == (1, b"a")
            assert await refused(served, world.dialler())
            assert taken == 1
            writer.close()
            await until(lambda: len(served.listener) == 0)
            _, writer = await served.connect(world.dialler())
            writer.close()

    run(scenario())


@both_loops
def test_a_new_tls_context_applies_from_the_next_connection_on(world: TlsWorld, run: Run) -> None:
    tls = world.clients(certificates.server("before"))
    later = world.clients(certificates.server("after")).context

    async def scenario() -> None:
        async with opened(tls) as served:
            old_reader, old = await served.connect(world.dialler())
            tls.context = later
            new_reader, new = await served.connect(world.dialler())
            assert [_name_of(old), _name_of(new)] == ["before", "after"]
            for number, (reader, writer) in enumerate([(old_reader, old), (new_reader, new)]):
                writer.write(frame(number, b"a"))
                assert await answer_to(reader) == (number, b"a")
                writer.close()

    run(scenario())


def _name_of(writer: asyncio.StreamWriter) -> str:
    subject = dict(part[0] for part in writer.get_extra_info("peercert")["subject"])
    return str(subject["commonName"])


@both_loops
def test_a_listener_closes_in_the_middle_of_a_handshake(world: TlsWorld, run: Run) -> None:
    async def scenario() -> None:
        async with opened(world.clients(), connections_max=1) as served:
            with socket.create_connection(("127.0.0.1", served.port)):
                await until(lambda: served.listener.handshakes_under_way == 1)
        assert served.limit.take() == "", "the client's place is free again"

    run(scenario())


def test_a_tls_client_at_a_plaintext_listener_is_logged_once(world: TlsWorld, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def scenario() -> None:
        async with ServedListener(echo) as served:
            for _ in range(2):
                assert await refused(served, world.dialler())

    asyncio.run(scenario())
    (told,) = [record.getMessage() for record in caplog.records]
    assert re.search(
        r"a TLS client from 127\.0\.0\.1 connected to the Kafka listener 127\.0\.0\.1:\d+: .* without TLS", told
    )
