"""Tests a Kafka listener where clients log in: APIs before and after the login, and clients that do not complete it."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from klamm.acls import AclOperation, ResourceType
from klamm.errors import ErrorCode
from klamm.quotas import REQUEST_PERCENTAGE
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.net.handshake_limit import SHARE_OF_AN_ADDRESS
from klamm_broker.kafka.net.tls_clients import TlsClients
from klamm_broker.kafka.requests import Request
from klamm_server.metadata.acl_index import AclIndex
from klamm_server.security.acls.authorizer import StandardAuthorizer
from klamm_server.security.gate import Gate
from klamm_server.security.quotas.client_quotas import ClientQuotas
from klamm_server.security.quotas.rate_window import WindowSpan
from klamm_server.security.session import CALLER
from tests.support import certificates
from tests.support.audit_events import AuditedServer
from tests.support.kafka_listener import REQUEST_MAX_BYTES, answer_to, frame, waits
from tests.support.sasl_authenticator import RECEIVE_MAX, Client, Run, World, both_loops, image, message
from tests.support.tls_world import TlsWorld
from tests.support.waiting import until


@both_loops
@pytest.mark.parametrize("login", [Client.by_plain, Client.by_scram])
def test_a_client_that_has_logged_in_is_served(run: Run, login: Callable[[Client], Any]) -> None:
    async def scenario() -> None:
        world = World()
        async with world.opened() as authenticator:
            client = await Client.of(authenticator)
            await until(lambda: len(world.limit) == 1)
            assert await login(client) == 0
            assert len(world.limit) == 0
            assert await client.is_served()
            assert await client.is_served(b"x" * (REQUEST_MAX_BYTES - 100))

    run(scenario())


@both_loops
@pytest.mark.parametrize("login", [Client.by_plain, Client.by_scram])
@pytest.mark.parametrize("name", ["alice", "nobody"])
def test_a_wrong_password_is_answered_and_ends_the_connection(run: Run, login: Any, name: str) -> None:
    async def scenario() -> None:
        async with World().opened() as authenticator:
            client = await Client.of(authenticator)
            assert await login(client, name, "wrong") == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await client.is_cut_off()

    run(scenario())


@both_loops
def test_an_unknown_mechanism_is_answered_with_the_enabled_ones(run: Run) -> None:
    async def scenario() -> None:
        async with World().opened() as authenticator:
            client = await Client.of(authenticator)
            answer = await client.ask(ApiKey.SASL_HANDSHAKE, 1, b"\x00\x06GSSAPI")
            assert answer == b"\x00\x21\x00\x00\x00\x02\x00\x0dSCRAM-SHA-256\x00\x05PLAIN"
            assert await client.is_cut_off()

    run(scenario())


@both_loops
def test_before_the_login_only_api_versions_is_handled(run: Run) -> None:
    handled: list[Request] = []

    def handle(request: Request) -> Any:
        handled.append(request)
        return [b"versions"]

    async def scenario() -> None:
        async with World().opened(handle) as authenticator:
            early = await Client.of(authenticator)
            early.writer.write(frame(1, b"a"))
            assert await early.is_cut_off()
            for request in (ApiKey.PRODUCE, 9, b""), (ApiKey.METADATA, 12, b"\x00\x01"):
                between = await Client.of(authenticator)
                assert await between.handshake() == 0
                between.writer.write(message(*request))
                assert await between.is_cut_off()
            assert not handled
            # Clients may ask this without a login.
            asking = await Client.of(authenticator)
            assert await asking.ask(ApiKey.API_VERSIONS, 0, b"") == b"versions"
            assert await asking.by_plain() == 0
            assert [one.api_key for one in handled] == [ApiKey.API_VERSIONS]

    run(scenario())


@both_loops
def test_the_audit_has_clients_that_break_off_their_login(run: Run) -> None:
    told = AuditedServer()

    async def scenario() -> None:
        async with World(auditor=told.auditor).opened() as authenticator:
            early, between = await Client.of(authenticator), await Client.of(authenticator)
            early.writer.write(frame(1, b"a"))
            assert await early.is_cut_off()
            assert await between.handshake() == 0
            between.writer.write(message(ApiKey.METADATA, 12, b"\x00\x01"))
            assert await between.is_cut_off()
        async with World(auditor=told.auditor, authentication_timeout_ms="1000").opened() as authenticator:
            assert await (await Client.of(authenticator)).is_cut_off()
        await told.auditor.close()

    run(scenario())
    found = [(event["auth_protocol"], event["status_detail"]) for event in told.events]
    assert found == [
        ("", "HEARTBEAT before SaslHandshake"),
        ("PLAIN", "METADATA during the login"),
        ("", "the login took longer than authentication.timeout.ms=1000"),
    ]
    assert {event["src_endpoint"]["ip"] for event in told.events} == {"127.0.0.1"}


@both_loops
def test_quotas_count_a_client_only_after_its_login(run: Run) -> None:
    quotas = ClientQuotas(WindowSpan())
    quotas.apply({(("client-id", None),): {REQUEST_PERCENTAGE: 100.0}})
    counted: list[int] = []

    def handle(request: Request) -> Any:
        return [b"versions"]

    async def scenario() -> None:
        async with World().opened(handle, quotas=quotas) as authenticator:
            client = await Client.of(authenticator)
            for _ in range(2):
                assert await client.ask(ApiKey.API_VERSIONS, 0, b"") == b"versions"
                counted.append(len(quotas))
                if len(counted) == 1:
                    assert await client.by_plain() == 0

    run(scenario())
    assert counted == [0, 1]


@both_loops
@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
def test_another_request_during_a_login_gets_illegal_sasl_state_and_ends_the_connection(run: Run, again: bool) -> None:
    async def scenario() -> None:
        async with World(connections_max_reauth_ms="60000").opened() as authenticator:
            for request, answer in {
                (ApiKey.HEARTBEAT, 0, b"what nobody reads"): b"\x00\x22",
                (ApiKey.API_VERSIONS, 0, b""): b"\x00\x22\x00\x00\x00\x00",
                (ApiKey.SASL_HANDSHAKE, 1, b"\x00\x05PLAIN"): b"\x00\x22\x00\x00\x00\x00",
            }.items():
                client = await Client.of(authenticator)
                if again:
                    assert await client.by_plain() == 0
                assert await client.handshake() == 0
                # The listener ignores bytes that a client sends after that.
                client.writer.write(message(*request) + frame(1, b"a"))
                assert await answer_to(client.reader) == (7, answer)
                assert await client.is_cut_off()

    run(scenario())


@both_loops
@pytest.mark.parametrize("max_reauth_ms", ["0", "60000"])
def test_a_login_that_may_not_begin_gets_illegal_sasl_state_and_the_session_goes_on(
    run: Run, max_reauth_ms: str
) -> None:
    async def scenario() -> None:
        async with World(connections_max_reauth_ms=max_reauth_ms).opened() as authenticator:
            client = await Client.of(authenticator)
            assert await client.by_plain() == 0
            if max_reauth_ms != "0":
                assert await client.by_plain() == 0
            for body in b"\x00\x05PLAIN", b"\x00\x01X":
                # The handler of the test repeats a request that is no part of a login. A broker answers with
                # ILLEGAL_SASL_STATE.
                assert await client.ask(ApiKey.SASL_HANDSHAKE, 1, body) == body
            assert await client.is_served()

    run(scenario())


@both_loops
@pytest.mark.parametrize("size", [RECEIVE_MAX + 1, 2**31 - 1, -1, 0])
def test_a_frame_that_is_too_large_ends_the_connection_at_once(run: Run, size: int) -> None:
    async def scenario() -> None:
        async with World().opened() as authenticator:
            client = await Client.of(authenticator)
            client.writer.write(struct.pack(">i", size))
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
        async with world.opened(tls=tls) as authenticator:
            good = await Client.of(authenticator, dialler)
            assert await good.by_plain() == 0
            waiting = [await Client.of(authenticator, dialler) for _ in range(3)]
            await until(lambda: len(world.limit) == 3)
            with contextlib.suppress(OSError):
                assert await (await Client.of(authenticator, dialler)).is_cut_off()
            assert await waiting[0].by_plain() == 0
            await until(lambda: len(world.limit) == 2)
            waiting[1].writer.close()
            await until(lambda: len(world.limit) == 1)
            assert await (await Client.of(authenticator, dialler)).by_plain() == 0
            assert await good.is_served()

    run(scenario())


@both_loops
def test_a_removed_or_changed_credential_ends_connections_with_waiting_requests_too(run: Run) -> None:
    handled: list[Request] = []

    @waits
    async def for_ever(request: Request) -> Any:
        handled.append(request)
        await asyncio.Event().wait()

    async def scenario() -> None:
        world = World()
        async with world.opened(for_ever) as authenticator:
            waiting, idle, other = [await Client.of(authenticator) for _ in range(3)]
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
            assert len(authenticator.listener) == 0

    run(scenario())


@both_loops
def test_requests_of_a_connection_run_as_the_user_that_logged_in(run: Run) -> None:
    seen: list[tuple[str, str, bool]] = []

    def handle(request: Request) -> Any:
        caller = CALLER.get()
        assert caller is not None
        may = caller.may(AclOperation.READ, ResourceType.TOPIC, "t")
        seen.append((caller.principal, caller.host, may))
        return [b"a"]

    async def scenario() -> None:
        gate = Gate(StandardAuthorizer(super_users=["User:alice"], allow_everyone_if_no_acl_found=False), AclIndex)
        async with World().opened(handle, gate=gate) as authenticator:
            for name, password in (("alice", "wonderland"), ("bob", "builder")):
                client = await Client.of(authenticator)
                await client.ask(ApiKey.API_VERSIONS, 0, b"")
                assert await client.by_plain(name, password) == 0
                await client.is_served(b"a")

    run(scenario())
    nobody = ("User:ANONYMOUS", "127.0.0.1", False)
    assert seen == [nobody, ("User:alice", "127.0.0.1", True), nobody, ("User:bob", "127.0.0.1", False)]


@both_loops
def test_over_tls_the_principal_is_that_of_the_login_and_not_of_the_certificate(run: Run, tmp_path: Path) -> None:
    seen: list[str] = []

    def handle(request: Request) -> Any:
        caller = CALLER.get()
        assert caller is not None
        seen.append(caller.principal)
        return [b"a"]

    async def scenario() -> None:
        tls_world = TlsWorld(tmp_path)
        tls = tls_world.clients(ssl_client_auth="required")
        tls = TlsClients(tls.context, tls._rules, timeout_ms=tls.timeout_ms, limit=tls.limit, names_clients=False)
        gate = Gate(StandardAuthorizer(super_users=[], allow_everyone_if_no_acl_found=False), AclIndex)
        async with World().opened(handle, tls=tls, gate=gate) as authenticator:
            client = await Client.of(authenticator, tls_world.dialler(certificates.client("carol")))
            assert await client.by_scram() == 0
            assert await client.is_served(b"a")

    run(scenario())
    assert seen == ["User:alice"]
