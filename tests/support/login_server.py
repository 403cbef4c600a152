"""A channel to a server that answers only after a login. The login is real SCRAM, without sockets."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from klamm.errors import ErrorCode
from klamm.rpc.call_metadata import CALL_METADATA, Metadata
from klamm.rpc.status import CallFailed, Status
from klamm.secret import Secret
from klamm.security.sasl.client import SaslClient
from klamm.security.sasl.scram_client import ScramClient
from klamm.security.sasl.scram_keys import ScramMechanism, credential_of, salted_password
from klamm.wire.service import Method
from klamm.wire.v1.authentication_pb2 import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from klamm_server.security.sasl.credential_store import CredentialStore
from klamm_server.security.sasl.scram_server import ScramServer
from klamm_server.security.sasl.server import Authenticated, SaslRefusedError

MECHANISM = ScramMechanism.SHA_256
USER, PASSWORD = "alice", "s3cret"
UNAUTHENTICATED = CallFailed(Status.UNAUTHENTICATED, "log in first")
_SALT = b"0123456789abcdef"


@dataclass
class Source:
    """A `klamm.rpc.login.SaslSource` by SCRAM."""

    password: str = PASSWORD
    mechanism_name: str = MECHANISM.mechanism_name
    logins: int = 0

    def client(self) -> SaslClient:
        self.logins += 1
        return ScramClient(MECHANISM, USER, Secret(self.password), nonce=f"nonce{self.logins}")


class LoginServer:
    """A `klamm.rpc.transport.Channel` to a server with logins. `answer` answers the calls that have a session. A
    session is valid until `drop`."""

    def __init__(self, answer: Callable[[Any], Awaitable[Any]] | None = None) -> None:
        self._answer = answer or self._echo
        salted = salted_password(MECHANISM, Secret(PASSWORD), _SALT, 4096)
        credential = credential_of(MECHANISM, salted, _SALT, 4096)
        self._store = CredentialStore({(USER, MECHANISM): credential}, b"secret")
        self._login: ScramServer | None = None
        self.sessions: set[str] = set()
        self.lifetime_ms = 0
        self.seen: list[str] = []
        """The paths of calls, in order."""
        self.closed = False

    def drop(self) -> None:
        """Ends all sessions."""
        self.sessions.clear()

    def unary(self, method: Method) -> Callable[[Any, int], asyncio.Task[Any]]:
        def begin(request: Any, timeout_ms: int) -> asyncio.Task[Any]:
            self.seen.append(method.name)
            return asyncio.ensure_future(self._handle(method.name, request, CALL_METADATA.get()))

        return begin

    def stream(self, method: Method) -> Callable[[Any, int | None], ServedStream]:
        def begin(request: Any, timeout_ms: int | None) -> ServedStream:
            self.seen.append(method.name)
            return ServedStream(self, self._used())

        return begin

    async def close(self) -> None:
        self.closed = True

    async def handshake(self, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        """Answers the handshake of a login. A test may replace this method."""
        self._login = ScramServer(MECHANISM, self._store, nonce="servers")
        return SaslHandshakeResponse(handshake_id=b"h", mechanisms=[request.mechanism])

    async def authenticate(self, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        """Answers a message of a login. A test may replace this method."""
        assert self._login is not None
        assert request.handshake_id == b"h"
        try:
            step = self._login.step(request.auth_bytes)
        except SaslRefusedError:
            return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="no")
        if not isinstance(step, Authenticated):
            return SaslAuthenticateResponse(auth_bytes=step)
        token = b"token%d" % self.seen.count("sasl_handshake")
        self.sessions.add(f"Klamm {base64.b64encode(token).decode()}")
        return SaslAuthenticateResponse(
            auth_bytes=step.answer, session_token=token, session_lifetime_ms=self.lifetime_ms
        )

    async def _handle(self, name: str, request: Any, metadata: Metadata) -> Any:
        if name == "sasl_handshake":
            return await self.handshake(SaslHandshakeRequest.FromString(_request(metadata)))
        if name == "sasl_authenticate":
            return await self.authenticate(SaslAuthenticateRequest.FromString(_request(metadata)))
        return await self._guarded(request)

    def _used(self) -> str:
        (said,) = [value for name, value in CALL_METADATA.get() if name == "authorization"]
        assert isinstance(said, str)
        return said

    async def _guarded(self, request: Any) -> Any:
        if self._used() not in self.sessions:
            raise UNAUTHENTICATED
        return await self._answer(request)

    async def _echo(self, request: Any) -> Any:
        return request


def _request(metadata: Metadata) -> bytes:
    """Returns the request of a login's call. The metadata contain nothing of the call that waits for the login."""
    ((name, value),) = metadata
    assert name == "klamm-request-bin"
    assert isinstance(value, bytes)
    return value


class ServedStream:
    """A `StreamCall` that returns the messages that were written to it, as long as its session is valid."""

    def __init__(self, server: LoginServer, used: str) -> None:
        self._server = server
        self._used = used
        self._written: list[Any] = []
        self._callbacks: list[Callable[[Any], None]] = []
        self.cancelled = False

    async def write(self, request: Any) -> None:
        self._check()
        self._written.append(request)

    async def read(self) -> Any:
        self._check()
        return self._written.pop(0) if self._written else None

    def done(self) -> bool:
        return self.cancelled

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        self._callbacks.append(function)

    def cancel(self) -> None:
        self.cancelled = True
        for callback in self._callbacks:
            callback(self)

    def _check(self) -> None:
        if self._used not in self._server.sessions:
            raise UNAUTHENTICATED
