"""Tests the checks before calls of a listener where clients log in: messages, bounds, streams of ended sessions."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import pytest

from klamm.errors import ErrorCode
from klamm.rpc.status import CallFailed, Status
from klamm.secret import Secret
from klamm.security.sasl.plain_client import PlainClient
from klamm.security.sasl.scram_client import ScramClient
from klamm.security.sasl.scram_keys import ScramMechanism, credential_of, salted_password
from klamm.wire.service import Method
from klamm.wire.v1.authentication_pb2 import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from klamm.wire.v1.authentication_rpc import AUTHENTICATION
from klamm.wire.v1.broker_rpc import BROKER, REPLICATION
from klamm.wire.v1.controller_rpc import ADMIN, CONTROLLER
from klamm.wire.v1.coordinator_rpc import COORDINATOR
from klamm.wire.v1.raft_rpc import RAFT
from klamm_server.config.sasl_settings import ListenerSaslSettings
from klamm_server.metadata.image import MetadataImage
from klamm_server.rpc.call_logins import CallLogins
from klamm_server.rpc.transport import Handler
from klamm_server.runtime.clock import SystemClock
from klamm_server.security.logins.logins import ListenerLogins, Users
from klamm_server.security.peer_principals import LOGGED_IN
from klamm_server.security.sasl.call_sessions import LOGIN_MS, LOGINS_MAX
from tests.support.audit_events import AuditedServer

SHA_256 = ScramMechanism.SHA_256
PASSWORD = "wonderland"
METHODS = {method.name: method for method in BROKER.methods}
MAX_BYTES = 1_024


class Context:
    """A call as a transport describes it."""

    def __init__(self, said: str = "", peer: str = "ipv4:10.0.0.1:50000", requests: Sequence[bytes] = ()) -> None:
        self._said = said
        self._peer = peer
        self._requests = requests

    def peer(self) -> str:
        return self._peer

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]]:
        authorization = (("authorization", self._said),) if self._said else ()
        return (("x", "y"), *authorization, *(("klamm-request-bin", request) for request in self._requests))

    def add_done_callback(self, function: Any) -> None:
        """Ignores the function, because no test waits for the end of the call."""


class World:
    """A listener, and alice among its users. It must be created where the event loop runs."""

    def __init__(self) -> None:
        settings = {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "connection.failed.authentication.delay.ms": "0",
            "sasl.server.max.receive.size": str(MAX_BYTES),
        }
        self.users = Users(SystemClock(), random.SystemRandom())
        self.set_password(PASSWORD)
        self.calls = CallLogins(ListenerLogins("OUT", ListenerSaslSettings.parse(settings), self.users))

    def set_password(self, password: str) -> None:
        salted = salted_password(SHA_256, Secret(password), b"salt", 4096)
        credential = credential_of(SHA_256, salted, b"salt", 4096)
        empty = MetadataImage.empty()
        self.users.on_image(replace(empty, scram_credentials={("alice", SHA_256): credential}, cluster_secret=b"s"))

    async def handshake(self, mechanism: str = "PLAIN", **context: str) -> SaslHandshakeResponse:
        request = SaslHandshakeRequest(mechanism=mechanism).SerializeToString()
        return await self.calls.sasl_handshake(None, Context(requests=[request], **context))

    async def authenticate(self, handshake_id: bytes, data: bytes, **context: str) -> SaslAuthenticateResponse:
        request = SaslAuthenticateRequest(handshake_id=handshake_id, auth_bytes=data).SerializeToString()
        return await self.calls.sasl_authenticate(None, Context(requests=[request], **context))

    async def said(self) -> str:
        """Logs in as alice. Returns the value of the header that her calls must send."""
        begun = await self.handshake()
        answer = await self.authenticate(begun.handshake_id, PlainClient("alice", Secret(PASSWORD)).first())
        assert answer.error_code == 0
        return f"Klamm {base64.b64encode(answer.session_token).decode()}"

    def guarded(self, method: Method, answer: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        *_, handler = self.calls.handlers([Handler(method, answer)])
        assert handler.method is method
        return handler.answer


def run(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        world = World()
        try:
            await scenario(world)
        finally:
            world.users.passwords.close()

    asyncio.run(main())


def refused(status: Status) -> Any:
    return pytest.raises(CallFailed, check=lambda error: error.status is status)


def test_a_login_continues_only_with_its_handshake_id_at_its_connection() -> None:
    async def scenario(world: World) -> None:
        begun = await world.handshake()
        assert list(begun.mechanisms) == ["PLAIN", "SCRAM-SHA-256"]
        message = PlainClient("alice", Secret(PASSWORD)).first()
        with refused(Status.UNAVAILABLE):
            await world.authenticate(begun.handshake_id, message, peer="ipv4:10.0.0.1:50001")
        with refused(Status.UNAVAILABLE):
            await world.authenticate(b"another", message)
        answer = await world.authenticate(begun.handshake_id, message)
        assert (answer.error_code, len(answer.session_token), answer.session_lifetime_ms) == (0, 32, 0)
        with refused(Status.UNAVAILABLE):
            await world.authenticate(begun.handshake_id, message)

    run(scenario)


def test_a_failed_login_cannot_be_continued() -> None:
    async def scenario(world: World) -> None:
        begun = await world.handshake()
        answer = await world.authenticate(begun.handshake_id, PlainClient("alice", Secret("guess")).first())
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert not answer.session_token
        assert "guess" not in answer.error_message
        with refused(Status.UNAVAILABLE):
            await world.authenticate(begun.handshake_id, PlainClient("alice", Secret(PASSWORD)).first())

    run(scenario)


def test_a_login_whose_credential_changes_is_answered_with_unavailable() -> None:
    """The error does not ask for another password.

    The server has not compared the client's password with the new one.
    """

    async def scenario(world: World) -> None:
        begun = await world.handshake("SCRAM-SHA-256")
        client = ScramClient(SHA_256, "alice", Secret(PASSWORD), nonce="client")
        proof = client.step((await world.authenticate(begun.handshake_id, client.first())).auth_bytes)
        assert proof is not None
        world.set_password("looking glass")
        with refused(Status.UNAVAILABLE):
            await world.authenticate(begun.handshake_id, proof)

    run(scenario)


def test_the_size_of_a_login_message_is_bounded() -> None:
    async def scenario(world: World) -> None:
        begun = await world.handshake()
        with refused(Status.INVALID_ARGUMENT):
            await world.authenticate(begun.handshake_id, b"x" * (MAX_BYTES + 1))
        begun = await world.handshake()
        answer = await world.authenticate(begun.handshake_id, b"x" * MAX_BYTES)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED

    run(scenario)


def test_unfinished_logins_of_one_network_do_not_keep_others_out() -> None:
    async def scenario(world: World) -> None:
        patient = await world.handshake()
        for number in range(LOGINS_MAX + 10):
            await world.handshake(peer=f"ipv6:%5B2001:db8::{number:x}%5D:1")
        answer = await world.authenticate(patient.handshake_id, b"x")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED, "its login was not ended"

    run(scenario)


def test_the_audit_has_a_login_that_times_out() -> None:
    told = AuditedServer()

    async def scenario(world: World) -> None:
        world.calls._logins.auditor = told.auditor
        await world.handshake()
        world.calls._under_way.end_late(SystemClock().monotonic_ms() + LOGIN_MS)
        await told.auditor.close()

    run(scenario)
    (event,) = told.events
    found = event["auth_protocol"], event["status_id"], event["status_detail"]
    assert found == ("PLAIN", 2, f"the login took longer than {LOGIN_MS} ms")


def test_a_login_without_one_readable_request_in_its_metadata_is_refused() -> None:
    async def scenario(world: World) -> None:
        request = SaslHandshakeRequest(mechanism="PLAIN").SerializeToString()
        for requests in ([], [request, request], [b"\xff"]):
            for call in (world.calls.sasl_handshake, world.calls.sasl_authenticate):
                with pytest.raises(CallFailed, match="expected one klamm-request-bin in the call's metadata"):
                    await call(None, Context(requests=requests))

    run(scenario)


def test_an_unknown_mechanism_is_refused_with_the_enabled_ones() -> None:
    async def scenario(world: World) -> None:
        answer = await world.handshake("GSSAPI")
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.error_message == "mechanism 'GSSAPI' is not enabled, expected one of PLAIN, SCRAM-SHA-256"
        assert not answer.handshake_id

    run(scenario)


def test_a_call_is_authenticated_by_its_session_token_at_its_connection() -> None:
    async def scenario(world: World) -> None:
        async def answer(request: Any, context: Any) -> Any:
            return request, LOGGED_IN.get()

        call, said = world.guarded(METHODS["fetch"], answer), await world.said()
        assert await call("asked", Context(said)) == ("asked", "User:alice")
        assert world.calls.has_session(Context(said).invocation_metadata())
        for context in (Context(), Context("Klamm AAAA"), Context("Bearer x"), Context(said, "ipv4:10.0.0.1:1")):
            with refused(Status.UNAUTHENTICATED):
                await call("asked", context)
        assert not world.calls.has_session(Context("Klamm AAAA").invocation_metadata())
        assert not world.calls.has_session([("authorization", said), ("authorization", said)])

    run(scenario)


def test_calls_between_servers_are_not_served_at_a_listener_with_logins() -> None:
    async def scenario(world: World) -> None:
        async def answer(request: Any, context: Any) -> Any:
            raise AssertionError("it was called")

        services = (ADMIN, BROKER, CONTROLLER, COORDINATOR, RAFT, REPLICATION)
        others = [Handler(method, answer) for service in services for method in service.methods]
        served = {handler.method.path.split("/")[1] for handler in world.calls.handlers(others)}
        clients = {service.name for service in (ADMIN, AUTHENTICATION, BROKER, COORDINATOR)}
        assert served == clients

    run(scenario)


async def _requests(*requests: str) -> AsyncIterator[str]:
    for request in requests:
        yield request
    await asyncio.Event().wait()


@pytest.mark.parametrize("name", ["fetch_stream", "produce_stream"])
def test_a_stream_that_waits_ends_with_its_session(name: str) -> None:
    async def scenario(world: World) -> None:
        ended = False

        async def answer(request: Any, context: Any) -> AsyncIterator[str]:
            nonlocal ended
            try:
                yield "first"
                await asyncio.Event().wait()
            finally:
                ended = True

        begun = asyncio.Event()

        async def read(said: str) -> None:
            async for _ in world.guarded(METHODS[name], answer)(_requests(), Context(said)):
                begun.set()

        # A transport reads all answers of a call in one task.
        reading = asyncio.create_task(read(await world.said()))
        await begun.wait()
        world.set_password("other")
        with refused(Status.UNAUTHENTICATED):
            await reading
        assert ended

    run(scenario)


def test_no_answer_follows_the_end_of_the_session() -> None:
    async def scenario(world: World) -> None:
        async def echo(requests: AsyncIterator[str], context: Any) -> AsyncIterator[str]:
            async for request in requests:
                yield request

        async def read(said: str) -> list[str]:
            heard = []
            async for each in world.guarded(METHODS["produce_stream"], echo)(_requests("a", "b", "c"), Context(said)):
                heard.append(each)
                world.set_password("other")
            return heard

        with refused(Status.UNAUTHENTICATED):
            await asyncio.create_task(read(await world.said()))

    run(scenario)


def test_a_cancelled_call_at_a_listener_with_logins_raises_the_cancellation() -> None:
    async def scenario(world: World) -> None:
        async def answer(request: Any, context: Any) -> AsyncIterator[str]:
            await asyncio.Event().wait()
            yield ""

        call = world.guarded(METHODS["fetch_stream"], answer)(None, Context(await world.said()))
        reading = asyncio.ensure_future(anext(call))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    run(scenario)
