"""One login over the calls of `klamm.v1.Authentication`: the messages, the possible answers and their meaning."""

from __future__ import annotations

import asyncio
import base64
import math
from typing import Any, Final, NamedTuple, Protocol

from klamm.errors import BrokerError, ErrorCode
from klamm.rpc.call_metadata import CALL_METADATA
from klamm.rpc.status import CallFailed, Status
from klamm.rpc.transport import Channel
from klamm.security.sasl.client import SaslClient
from klamm.threads.in_thread import in_thread
from klamm.wire.v1.authentication_pb2 import SaslAuthenticateRequest, SaslHandshakeRequest
from klamm.wire.v1.authentication_rpc import AUTHENTICATION

SCHEME: Final = "Klamm"
"""The scheme before a session's token in the metadata `authorization`."""
REQUEST: Final = "klamm-request-bin"
"""The metadata that contain the serialized request of a login's call. The request itself is empty, because servers do
not read requests of clients that have not logged in."""
REQUEST_MAX_BYTES: Final = 40_960
"""The maximum size of a login's request in bytes. As base64 it is within the metadata that servers accept."""
_HANDSHAKE, _AUTHENTICATE = AUTHENTICATION.methods
_NO_LOGIN: Final = "nobody logs in at this listener (security.protocol=PLAINTEXT or SSL)"


class SaslSource(Protocol):
    """Creates the logins of a client, one for each connection."""

    mechanism_name: str

    def client(self) -> SaslClient:
        """Starts one login. It may read files and ask for a token, so it is called in a thread.

        Raises LoginFailed, or CallFailed where it may work later."""


class LoginFailed(CallFailed):
    """The login was refused. A retry would not help."""

    def __init__(self, code: ErrorCode, details: str) -> None:
        super().__init__(Status.UNAUTHENTICATED, details)
        self._code = code

    @property
    def code(self) -> ErrorCode:
        return self._code


class LoggedIn(NamedTuple):
    """A session after a login."""

    authorization: str
    """The value of the metadata `authorization` that identifies the session. It is valid only at the session's
    connection."""
    lifetime_s: float
    """The maximum lifetime of the session in seconds, or infinity if the server sets none."""


async def log_in(channel: Channel, source: SaslSource, *, timeout_ms: int) -> LoggedIn:
    """Logs in and returns the session.

    Raises LoginFailed or CallFailed. Work that needs CPU or files runs in a thread."""
    async with asyncio.timeout(timeout_ms / 1000):
        client = await in_thread(source.client)
        return await _Login(channel, client, timeout_ms).run()


class _Login:
    def __init__(self, channel: Channel, client: SaslClient, timeout_ms: int) -> None:
        self._channel = channel
        self._client = client
        self._timeout_ms = timeout_ms

    async def run(self) -> LoggedIn:
        handshake_id = await self._handshake()
        message: bytes | None = self._client.first()
        token, lifetime_s = b"", math.inf
        while message is not None and not token:
            request = SaslAuthenticateRequest(handshake_id=handshake_id, auth_bytes=message)
            answer = await self._ask(_AUTHENTICATE, request)
            token = answer.session_token
            lifetime_s = answer.session_lifetime_ms / 1000 or math.inf
            message = await in_thread(self._step, answer.auth_bytes)
        if message is not None or not token:
            raise LoginFailed(ErrorCode.ILLEGAL_SASL_STATE, "one end takes the login for complete, the other does not")
        return LoggedIn(f"{SCHEME} {base64.b64encode(token).decode()}", lifetime_s)

    async def _handshake(self) -> bytes:
        try:
            answer = await self._ask(_HANDSHAKE, SaslHandshakeRequest(mechanism=self._client.mechanism_name))
        except CallFailed as failure:
            if failure.status is Status.UNIMPLEMENTED:
                raise LoginFailed(ErrorCode.ILLEGAL_SASL_STATE, _NO_LOGIN) from failure
            raise
        handshake_id: bytes = answer.handshake_id
        return handshake_id

    async def _ask(self, method: Any, request: Any) -> Any:
        data = request.SerializeToString()
        if len(data) > REQUEST_MAX_BYTES:
            told = f"the login's request has {len(data)} bytes, expected at most {REQUEST_MAX_BYTES} over gRPC"
            raise LoginFailed(ErrorCode.SASL_AUTHENTICATION_FAILED, told)
        before = CALL_METADATA.set(((REQUEST, data),))
        try:
            call = self._channel.unary(method)(type(request)(), self._timeout_ms)
        finally:
            CALL_METADATA.reset(before)
        answer = await call
        if answer.error_code:
            raise LoginFailed(ErrorCode.of(answer.error_code), answer.error_message)
        return answer

    def _step(self, challenge: bytes) -> bytes | None:
        try:
            return self._client.step(challenge)
        except BrokerError as error:
            raise LoginFailed(error.code, error.message) from error
