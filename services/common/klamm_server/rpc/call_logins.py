"""Logins at a gRPC listener where clients log in (GRPC_SASL_PLAINTEXT, GRPC_SASL_SSL).

The listener has the service `klamm.v1.Authentication`, and a guard around all other calls, which refuses clients that
have not logged in. A stream belongs to its session. When the session ends, the stream ends with UNAUTHENTICATED, even
while it waits.
"""

from __future__ import annotations

import asyncio
import base64
import functools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from klamm.errors import ErrorCode
from klamm.rpc.login import REQUEST, SCHEME
from klamm.rpc.login_channel import AUTHORIZATION
from klamm.rpc.status import CallFailed, Status
from klamm.wire.calls import CallContext
from klamm.wire.service import Method
from klamm.wire.v1.authentication_pb2 import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from klamm.wire.v1.authentication_rpc import AUTHENTICATION
from klamm_server.config.sasl_settings import OAUTHBEARER
from klamm_server.rpc.transport import WANTS_LOGIN, Handler, Metadata
from klamm_server.security.acls.hosts import network_of
from klamm_server.security.gate import host_of
from klamm_server.security.logins.checks import ChecksBusyError
from klamm_server.security.logins.login import CredentialChangedError, Login, TooManyFailuresError
from klamm_server.security.logins.logins import ListenerLogins
from klamm_server.security.operations import check_of_rpc, is_between_servers
from klamm_server.security.peer_principals import LOGGED_IN
from klamm_server.security.sasl.call_sessions import LOGIN_MS, CallSession, CallSessions, LoginsUnderWay
from klamm_server.security.sasl.sasl_authenticator import AuthenticateReply, SaslStateError

SWEEP_S: Final = 0.5
"""The interval of checks for expired sessions, in seconds."""
_TOKEN_BYTES: Final = 32
_ID_BYTES: Final = 16
_BEARER: Final = "bearer "
_CLIENTS_LAST: Final = b"\x01"
"""The answer of an OAUTHBEARER client to the server's reason for a refusal."""
_RequestT = TypeVar("_RequestT", bound=Message)


class CallLogins:
    """The logins of calls at one listener. `run` runs until it is cancelled."""

    def __init__(self, logins: ListenerLogins) -> None:
        self._logins = logins
        self._clock = logins.users.clock
        self._takes_bearer = OAUTHBEARER in logins.settings.sasl_enabled_mechanisms
        self._under_way: LoginsUnderWay[_OneLogin] = LoginsUnderWay(_end_late)
        self._sessions = CallSessions()
        self._verifying: dict[str, asyncio.Task[CallSession]] = {}
        self.open_paths = frozenset(method.path for method in AUTHENTICATION.methods)
        """The paths of the calls with which a client logs in."""

    async def run(self) -> None:
        """Ends expired sessions and late logins until it is cancelled."""
        try:
            while True:
                await asyncio.sleep(SWEEP_S)
                self._sessions.sweep(self._clock.wall_ms())
                self._under_way.end_late(self._clock.monotonic_ms())
        finally:
            for task in self._verifying.values():
                task.cancel()

    def handlers(self, others: Sequence[Handler]) -> list[Handler]:
        """Returns the listener's handlers: the calls of a login, and the other calls behind the guard.

        Calls between servers are left out, because servers do not log in here. Without an authorizer, a client could
        read the users' credentials by such calls."""
        own = [Handler(method, getattr(self, method.name)) for method in AUTHENTICATION.methods]
        for handler in own:
            check_of_rpc(handler.method.path)
        clients = [other for other in others if not is_between_servers(other.method.path)]
        return own + [Handler(client.method, self._guarded(client.method, client.answer)) for client in clients]

    def has_session(self, metadata: Metadata) -> bool:
        """Returns whether a call with that metadata names a session, which may be that of another caller."""
        return self._sessions.find(_said(metadata)) is not None

    def has_token(self, metadata: Metadata) -> bool:
        """Returns whether a call with that metadata may log in by a token."""
        return self._is_bearer(_said(metadata))

    async def session(self, context: CallContext) -> CallSession:
        """Returns the session of a call. Raises CallFailed(UNAUTHENTICATED)."""
        said = _said(context.invocation_metadata() or ())
        session = self._sessions.find(said)
        if session is not None and session.is_good(context.peer(), self._clock.wall_ms()):
            return session
        if not self._is_bearer(said):
            raise _unauthenticated()
        task = self._verifying.get(said)
        if task is None:
            task = self._verifying[said] = asyncio.create_task(self._verify(said, host_of(context.peer())))
            task.add_done_callback(functools.partial(self._verified, said))
        return await asyncio.shield(task)

    # klamm.v1.Authentication

    async def sasl_handshake(self, unread: None, context: CallContext) -> SaslHandshakeResponse:
        """Begins a login. The request is in the metadata."""
        if not self._logins.users.are_known:
            raise CallFailed(Status.UNAVAILABLE, "the users are not loaded yet")
        request = _request(SaslHandshakeRequest, context)
        login = _OneLogin(self._logins, context.peer())
        reply = login.login.handshake(request.mechanism)
        if reply.code is not ErrorCode.NONE:
            told = (
                f"mechanism {request.mechanism[:100]!r} is not enabled, expected one of {', '.join(reply.mechanisms)}"
            )
            return SaslHandshakeResponse(error_code=reply.code, error_message=told, mechanisms=reply.mechanisms)
        handshake_id, peer = self._logins.users.rng.randbytes(_ID_BYTES), context.peer()
        now_ms = self._clock.monotonic_ms()
        self._under_way.begin(handshake_id, login, peer=peer, address=network_of(host_of(peer)), now_ms=now_ms)
        return SaslHandshakeResponse(mechanisms=reply.mechanisms, handshake_id=handshake_id)

    async def sasl_authenticate(self, unread: None, context: CallContext) -> SaslAuthenticateResponse:
        """Answers a message of a login. The request is in the metadata."""
        request = _request(SaslAuthenticateRequest, context)
        handshake_id = request.handshake_id
        login = self._under_way.take(handshake_id, context.peer(), self._clock.monotonic_ms())
        if login is None:
            # The connection may have been replaced during the login.
            raise CallFailed(Status.UNAVAILABLE, "the connection has no such login in progress: start a new login")
        is_over = True
        try:
            _check_size(request.auth_bytes, self._logins.settings.sasl_server_max_receive_size)
            reply = await _answered(login.login, request.auth_bytes)
            is_over = reply.code is not ErrorCode.NONE or login.login.authenticator.is_complete
        finally:
            (self._under_way.end if is_over else self._under_way.put_back)(handshake_id)
        if reply.code is not ErrorCode.NONE:
            return SaslAuthenticateResponse(error_code=reply.code, error_message=reply.message)
        token = self._begin_session(login) if is_over else b""
        return SaslAuthenticateResponse(
            auth_bytes=reply.auth_bytes, session_lifetime_ms=reply.session_lifetime_ms, session_token=token
        )

    def _begin_session(self, login: _OneLogin) -> bytes:
        token = self._logins.users.rng.randbytes(_TOKEN_BYTES)
        self._sessions.begin(f"{SCHEME} {base64.b64encode(token).decode()}", login.begun_session())
        return token

    async def _verify(self, said: str, address: str) -> CallSession:
        """Logs a client in by a bearer token, and returns its session."""
        login = _OneLogin(self._logins, None, address)
        login.login.handshake(OAUTHBEARER)
        message = b"n,,\x01auth=Bearer " + said[len(_BEARER) :].strip().encode(errors="replace") + b"\x01\x01"
        _check_size(message, self._logins.settings.sasl_server_max_receive_size)
        await _answered(login.login, message)
        if not login.login.authenticator.is_complete:
            reply = await _answered(login.login, _CLIENTS_LAST)
            raise CallFailed(Status.UNAUTHENTICATED, reply.message)
        session = login.begun_session()
        self._sessions.begin(said, session)
        return session

    def _verified(self, said: str, task: asyncio.Task[CallSession]) -> None:
        del self._verifying[said]
        if not task.cancelled():
            task.exception()  # Read it, because there may be no caller left that waits for it.

    def _is_bearer(self, said: str) -> bool:
        return self._takes_bearer and said[: len(_BEARER)].lower() == _BEARER

    # The guard

    def _guarded(self, method: Method, answer: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        if method.server_streaming:
            return self._answers(answer, is_streamed=method.client_streaming)
        return self._upload(answer) if method.client_streaming else self._unary(answer)

    def _unary(self, answer: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        async def call(request: Any, context: CallContext) -> Any:
            LOGGED_IN.set(_principal(await self.session(context)))
            return await answer(request, context)

        return call

    def _upload(self, answer: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        async def call(requests: AsyncIterator[Any], context: CallContext) -> Any:
            held = _Held(await self.session(context), context.peer(), self._clock.wall_ms)
            LOGGED_IN.set(_principal(held.session))
            with held.ending():
                answered = await answer(held.checked(requests), context)
                held.check()
                return answered

        return call

    def _answers(
        self, answer: Callable[[Any, Any], AsyncIterator[Any]], *, is_streamed: bool
    ) -> Callable[[Any, Any], AsyncIterator[Any]]:
        async def call(request: Any, context: CallContext) -> AsyncIterator[Any]:
            held = _Held(await self.session(context), context.peer(), self._clock.wall_ms)
            LOGGED_IN.set(_principal(held.session))
            with held.ending():
                async for response in answer(held.checked(request) if is_streamed else request, context):
                    held.check()
                    yield response
                held.check()

        return call


class _OneLogin:
    """A login under way, and its session after that."""

    def __init__(self, logins: ListenerLogins, peer: str | None, address: str = "") -> None:
        self._session = CallSession(peer=peer)
        self.login = Login(logins, address or host_of(peer or ""), lambda _: self._session.end())

    def begun_session(self) -> CallSession:
        """Returns the session of a complete login."""
        authenticator, session = self.login.authenticator, self._session
        assert authenticator.user is not None, "the login is complete"
        session.user, session.expires_ms = authenticator.user, authenticator.expires_ms
        session.on_end(self.login.close)
        return session


def _end_late(late: _OneLogin) -> None:
    late.login.break_off(f"the login took longer than {LOGIN_MS} ms")


class _Held:
    """A session that a stream belongs to."""

    def __init__(self, session: CallSession, peer: str, now_ms: Callable[[], int]) -> None:
        self.session = session
        self._peer = peer
        self._now_ms = now_ms

    def check(self) -> None:
        """Raises CallFailed(UNAUTHENTICATED) if the session has ended."""
        if not self.session.is_good(self._peer, self._now_ms()):
            raise _unauthenticated()

    async def checked(self, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Yields requests until the session ends. It ends without an error, because its reader may be a task whose
        failure nobody sees."""
        async for request in requests:
            if not self.session.is_good(self._peer, self._now_ms()):
                return
            yield request

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Ends the code inside with CallFailed(UNAUTHENTICATED) when the session ends."""
        task = asyncio.current_task()
        assert task is not None, "calls are tasks"
        was_ended = False

        def end() -> None:
            nonlocal was_ended
            was_ended = True
            task.cancel()

        self.session.on_end(end)
        try:
            yield
        except asyncio.CancelledError:
            if not was_ended:
                raise
            task.uncancel()
            raise _unauthenticated() from None
        finally:
            self.session.forget(end)


def _said(metadata: Metadata) -> str:
    """Returns the caller's `authorization`. Returns empty text if there is none, or more than one."""
    values = [value for name, value in metadata if name == AUTHORIZATION]
    return values[0] if len(values) == 1 and isinstance(values[0], str) else ""


def _request(kind: type[_RequestT], context: CallContext) -> _RequestT:
    """Returns the request that the call's metadata contain."""
    values = [value for name, value in context.invocation_metadata() or () if name == REQUEST]
    if len(values) == 1 and isinstance(values[0], bytes):
        with suppress(DecodeError):
            return kind.FromString(values[0])
    told = f"expected one {REQUEST} in the call's metadata, a serialized {kind.DESCRIPTOR.name}"
    raise CallFailed(Status.INVALID_ARGUMENT, told)


def _principal(session: CallSession) -> str:
    return f"User:{session.user}"


def _unauthenticated() -> CallFailed:
    return CallFailed(Status.UNAUTHENTICATED, WANTS_LOGIN)


def _check_size(message: bytes, max_bytes: int) -> None:
    if len(message) > max_bytes:
        raise CallFailed(
            Status.INVALID_ARGUMENT,
            f"the message has {len(message)} bytes, expected at most {max_bytes} before the login",
        )


async def _answered(login: Login, message: bytes) -> AuthenticateReply:
    try:
        return await login.authenticate(message)
    except (ChecksBusyError, TooManyFailuresError) as error:
        raise CallFailed(Status.RESOURCE_EXHAUSTED, str(error)) from error
    except CredentialChangedError as error:
        # The client logs in again, as it does after a Kafka listener has closed the connection.
        raise CallFailed(Status.UNAVAILABLE, str(error)) from error
    except SaslStateError as error:
        return AuthenticateReply(code=ErrorCode.ILLEGAL_SASL_STATE, message=str(error))
