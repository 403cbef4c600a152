"""The login of one connection of a Kafka client: before its requests are served, and again to renew its session
(KIP-43, KIP-152, KIP-368).

    INITIAL ─SaslHandshake─► AUTHENTICATE ─SaslAuthenticate, some rounds─► COMPLETE ─SaslHandshake─► AUTHENTICATE ...
      │ ApiVersions, 4 at most    ├── failure: 58 ──► ENDED                    └── past the session's end ──► ENDED
      │                           └── anything else: 34 ──► ENDED
      └── unknown mechanism: 33, anything else ──► ENDED

A client must log in again with the same mechanism and as the same user. As in Kafka, it may do so only if its session
has an end, and once a second. Otherwise the answer to SaslHandshake is 34, and the session continues.

`Login` (klamm_server.security.logins) delays the answers to failures, and runs expensive checks in a thread. The
connection bounds the size of requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from klamm.errors import ErrorCode, KlammError
from klamm_server.security.sasl.credential_store import Found
from klamm_server.security.sasl.server import Authenticated, SaslRefusedError, SaslServer, Verification

API_VERSIONS_MAX: Final = 4
"""The most ApiVersions requests before SaslHandshake."""
RENEWAL_MS: Final = 1_000
"""The least time between the starts of two logins that renew a session."""
ROUNDS_MAX: Final = 6
"""The most SaslAuthenticate requests of one login."""


class SaslStateError(KlammError):
    """Raised for a request that is not allowed in the current state. The connection ends without an answer."""


class LoginInterruptedError(SaslStateError):
    """Raised for a request that interrupts a login and ends it. The client gets this error if the response to its
    request can contain it."""


class SessionExpiredError(SaslStateError):
    """Raised for a request after the end of the session that is not part of a login."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandshakeReply:
    """The answer to SaslHandshake. The connection ends after an answer with an error."""

    code: ErrorCode
    mechanisms: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticateReply:
    """The answer to SaslAuthenticate. The connection ends after an answer with an error, which is sent after a
    delay."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0
    """The lifetime of the session in milliseconds. 0 means that the session has no end, or that its login is not
    complete."""
    cause: str = ""
    """The reason why the login failed. It is logged and never sent to the client."""
    user: str = ""
    """The name that the client gave in a failed login, or empty text if it gave none."""


class _State(Enum):
    INITIAL = "before SaslHandshake"
    AUTHENTICATE = "during the login"
    COMPLETE = "after the login"
    ENDED = "after the end"


class SaslAuthenticator:
    """The state machine of one connection's logins. The module's docstring has its transitions.

    `servers` has, for each enabled mechanism, a function that makes the server's side of a login. `max_reauth_ms`
    returns connections.max.reauth.ms of a mechanism. If that is 0, only the lifetime of the credential bounds a
    session.

    Invariant: `user` is set from the first COMPLETE on, and never changes."""

    def __init__(self, servers: Mapping[str, Callable[[], SaslServer]], *, max_reauth_ms: Callable[[str], int]) -> None:
        self._servers = servers
        self._max_reauth_ms = max_reauth_ms
        self._state = _State.INITIAL
        self._mechanism = ""
        self._server: SaslServer | None = None
        self._api_versions = self._rounds = 0
        self._renewed_ms: int | None = None
        """The wall-clock time at which the last login began that renews the session."""
        self.user: str | None = None
        """The user that has logged in, or None before the first login."""
        self.proven: Found | None = None
        """The credential of the last login, or None if the login used another proof."""
        self.expires_ms: int | None = None
        """The wall-clock time at which the session ends, or None if it has no end or there was no login yet."""

    @property
    def is_complete(self) -> bool:
        """True while requests that are not part of a login may be served."""
        return self._state is _State.COMPLETE

    @property
    def mechanism(self) -> str:
        """The mechanism of the current login, or else of the last one. Empty before the first login."""
        return self._mechanism

    def api_versions(self, now_ms: int) -> None:
        """Handles the arrival of an ApiVersions request. Raises SaslStateError if it may not be answered."""
        if self._state is _State.COMPLETE:
            self._check_session("ApiVersions", now_ms)
            return
        self._api_versions += 1
        if self._state is not _State.INITIAL or self._api_versions > API_VERSIONS_MAX:
            raise self._out_of_place("ApiVersions")

    def other(self, name: str, now_ms: int) -> None:
        """Handles the arrival of a request that is not part of a login. Raises SaslStateError if it may not be
        served."""
        if self._state is not _State.COMPLETE:
            raise self._out_of_place(name)
        self._check_session(name, now_ms)

    def may_begin(self, now_ms: int) -> bool:
        """True unless the client is logged in and may not renew its session now. Raises SessionExpiredError if the
        session has ended too."""
        if self._state is not _State.COMPLETE:
            return True
        if self.expires_ms is not None and (
            self._renewed_ms is None or not 0 <= now_ms - self._renewed_ms < RENEWAL_MS
        ):
            return True
        self._check_session("SaslHandshake", now_ms)
        return False

    def handshake(self, mechanism: str, now_ms: int) -> HandshakeReply:
        """Handles a SaslHandshake request, which starts a login. The caller asks `may_begin` first. Raises
        SaslStateError if a login is in progress."""
        if self._state not in (_State.INITIAL, _State.COMPLETE):
            raise self._out_of_place("SaslHandshake")
        enabled = tuple(self._servers)
        if self._state is _State.COMPLETE:
            self._renewed_ms = now_ms
        if mechanism not in self._servers:
            self._state = _State.ENDED
            return HandshakeReply(code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=enabled)
        self._server = self._servers[mechanism]()
        self._rounds = 0
        # As in Kafka, a client that logs in again with another mechanism is refused only at the end of the login.
        self._state, before = _State.AUTHENTICATE, self._mechanism
        self._mechanism = mechanism
        if before and before != mechanism:
            self._server = _Refusing(
                f"user {self.user!r} logged in again with {mechanism}; expected {before} as before"
            )
        return HandshakeReply(code=ErrorCode.NONE, mechanisms=enabled)

    def authenticate(self, data: bytes, now_ms: int) -> AuthenticateReply | Verification[Any]:
        """Handles a SaslAuthenticate request. Returns the answer or a Verification.

        For a Verification, the caller must run its check and then call `conclude` with the result, before any other
        call. Raises SaslStateError if no login is in progress."""
        server = self._server
        if self._state is not _State.AUTHENTICATE or server is None:
            raise self._out_of_place("SaslAuthenticate")
        self._rounds += 1
        if self._rounds > ROUNDS_MAX:
            return self._failed(f"more than {ROUNDS_MAX} messages of one login")
        try:
            step = server.step(data)
        except SaslRefusedError as error:
            return self._failed(str(error), error.user)
        return step if isinstance(step, Verification) else self._after(step, now_ms)

    def conclude(self, verification: Verification[Any], found: object, now_ms: int) -> AuthenticateReply:
        """Returns the answer to the login, after the check of `verification` has returned `found`."""
        try:
            return self._after(verification.decide(found), now_ms)
        except SaslRefusedError as error:
            return self._failed(str(error), error.user)

    def _after(self, step: bytes | Authenticated, now_ms: int) -> AuthenticateReply:
        if not isinstance(step, Authenticated):
            return AuthenticateReply(auth_bytes=step)
        if self.user not in (None, step.name):
            return self._failed(f"user {self.user!r} logs in again as {step.name!r}", step.name)
        lifetime_ms = self._lifetime_ms(step, now_ms)
        self.user, self.proven = step.name, step.proven
        self.expires_ms = None if lifetime_ms is None else now_ms + lifetime_ms
        self._state, self._server = _State.COMPLETE, None
        return AuthenticateReply(auth_bytes=step.answer, session_lifetime_ms=lifetime_ms or 0)

    def _lifetime_ms(self, done: Authenticated, now_ms: int) -> int | None:
        max_reauth_ms = self._max_reauth_ms(self._mechanism)
        ends = [max_reauth_ms] if max_reauth_ms else []
        if done.expires_at_s is not None:
            ends.append(max(0, int(1000 * done.expires_at_s) - now_ms))
        return min(ends, default=None)

    def _check_session(self, name: str, now_ms: int) -> None:
        if self.expires_ms is not None and now_ms >= self.expires_ms:
            self._state = _State.ENDED
            raise SessionExpiredError(
                f"{name} of user {self.user!r} came after the end of the session; expected a new login"
            )

    def _failed(self, cause: str, user: str = "") -> AuthenticateReply:
        self._state, self._server = _State.ENDED, None
        return AuthenticateReply(
            code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            message="Authentication failed during authentication due to invalid credentials with SASL mechanism "
            + self._mechanism,
            cause=cause,
            user=user,
        )

    def _out_of_place(self, name: str) -> SaslStateError:
        kind = LoginInterruptedError if self._state is _State.AUTHENTICATE else SaslStateError
        error = kind(f"{name} {self._state.value}")
        self._state = _State.ENDED
        return error


class _Refusing:
    """The server's side of a login that is always refused."""

    def __init__(self, cause: str) -> None:
        self._cause = cause

    def step(self, data: bytes) -> bytes:
        """Refuses the login. Raises SaslRefusedError."""
        raise SaslRefusedError(self._cause)
