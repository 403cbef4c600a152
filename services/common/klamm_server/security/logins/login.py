"""The login of one connection, and the session that follows: `SaslAuthenticator`, with what takes time.

The answer to a failed login waits, and the session ends when the credential does that it was proved by.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from klamm.errors import ErrorCode
from klamm_server.metrics.instruments import counters
from klamm_server.security.logins.checks import ChecksBusyError
from klamm_server.security.logins.logins import ListenerLogins
from klamm_server.security.sasl.proven_sessions import REASON, ProvenSession
from klamm_server.security.sasl.sasl_authenticator import AuthenticateReply, HandshakeReply, SaslStateError
from klamm_server.security.sasl.server import Verification

log = logging.getLogger(__name__)

LOGINS: Final = counters("klamm_logins", "Finished logins, by result", ("listener", "mechanism", "result"))
SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"
_CAUSE_SHOWN: Final = 200
"""Characters of a cause that are logged: it may have a name of any length."""


class TooManyFailuresError(SaslStateError):
    """Too many answers to failed logins already wait for the client's address. The connection ends without this
    answer.
    """


class CredentialChangedError(SaslStateError):
    """The proved credential was changed during the login. Only another login tells whether the secret is good."""


class Login:
    """The login of one connection. The owner calls `handshake`, then `authenticate` once at a time, and `close` at the
    end. `authenticator` knows the user.

    `end` is called when the session has to end at once, with the reason."""

    def __init__(self, logins: ListenerLogins, address: str, end: Callable[[str], None]) -> None:
        self.authenticator = logins.new_authenticator()
        self._logins = logins
        self._address = address
        self._end = end
        self._session: ProvenSession | None = None

    def handshake(self, mechanism: str) -> HandshakeReply:
        """Selects the mechanism (`SaslAuthenticator.handshake`), and records a refusal in the audit."""
        try:
            reply = self.authenticator.handshake(mechanism, self._logins.users.clock.wall_ms())
        except SaslStateError as error:
            self.break_off(str(error))
            raise
        if reply.code is not ErrorCode.NONE:
            self._record("", mechanism, "the mechanism is not enabled")
        return reply

    async def authenticate(self, data: bytes) -> AuthenticateReply:
        """Returns the answer to a message of the client. After an error, the connection ends.

        Raises SaslStateError or ChecksBusyError if the connection must end without an answer."""
        authenticator = self.authenticator
        try:
            reply = await self._reply(data)
        except (SaslStateError, ChecksBusyError) as error:
            self.break_off(str(error))
            raise
        if reply.code is not ErrorCode.NONE:
            await self._fail(reply)
        elif authenticator.is_complete:
            self._succeed()
        return reply

    def break_off(self, cause: str) -> None:
        """Records in the audit that the login ended without a result, for example after its time limit."""
        self._record(self.authenticator.user or "", self.authenticator.mechanism, cause[:_CAUSE_SHOWN])

    def close(self) -> None:
        """Ends the login and its session after the connection was closed."""
        if self._session is not None:
            self._logins.users.sessions.forget(self._session)

    async def _reply(self, data: bytes) -> AuthenticateReply:
        authenticator, clock = self.authenticator, self._logins.users.clock
        reply = authenticator.authenticate(data, clock.wall_ms())
        if isinstance(reply, Verification):
            found = await self._logins.check(authenticator.mechanism, reply)
            reply = authenticator.conclude(reply, found, clock.wall_ms())
        return reply

    async def _fail(self, reply: AuthenticateReply) -> None:
        users = self._logins.users
        self._count(FAILED)
        log.info("client=%s login failed: %s", self._address, reply.cause[:_CAUSE_SHOWN])
        self._record(reply.user, self.authenticator.mechanism, reply.cause[:_CAUSE_SHOWN])
        delay_ms = users.failures.failed(
            reply.user,
            self._address,
            self._logins.settings.connection_failed_authentication_delay_ms,
            users.clock.monotonic_ms(),
        )
        if not users.failures.begin_wait(self._address):
            raise TooManyFailuresError("too many failed logins from the client's address")
        try:
            await asyncio.sleep(delay_ms / 1000)
        finally:
            users.failures.end_wait(self._address)

    def _succeed(self) -> None:
        users, authenticator = self._logins.users, self.authenticator
        assert authenticator.user is not None, "the login is complete"
        self._count(SUCCEEDED)
        self._record(authenticator.user, authenticator.mechanism)
        users.failures.succeeded(authenticator.user, self._address)
        self.close()
        proven = authenticator.proven
        if proven is None:
            return
        self._session = ProvenSession((authenticator.user, proven.mechanism), proven.credential, self._end)
        if not users.sessions.begin(self._session):
            raise CredentialChangedError(f"the session of user {authenticator.user!r} is over: {REASON}")

    def _record(self, user: str, mechanism: str, failure: str = "") -> None:
        auditor = self._logins.auditor
        if auditor is not None:
            auditor.logged_in(f"User:{user}", self._address, mechanism, self._logins.listener, failure)

    def _count(self, result: str) -> None:
        LOGINS.labels(self._logins.listener, self.authenticator.mechanism, result).inc()
