"""The passwords and tokens of clients' logins. Only clients that log in load this module."""

from __future__ import annotations

import base64
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klamm.errors import ConfigError, ErrorCode
from klamm.process import PROCESS
from klamm.rpc.login import LoginFailed
from klamm.rpc.status import CallFailed, Status
from klamm.secret import Secret
from klamm.security.client_settings import PasswordLogin, TokenLogin
from klamm.security.sasl.client import SaslClient
from klamm.security.sasl.oauthbearer_client import OAuthBearerClient
from klamm.security.sasl.plain_client import PlainClient
from klamm.security.sasl.scram_client import ScramClient
from klamm.security.sasl.scram_keys import ScramMechanism

if TYPE_CHECKING:
    from klamm.security.token_endpoint import GivenToken

PASSWORD_BYTES_MAX: Final = 65_536
_FILE: Final = "sasl.password.file"
_NONCE_BYTES: Final = 24
_RENEWED_AFTER: Final = 0.8
"""The share of a token's lifetime after which a new one is requested (Kafka's sasl.login.refresh.window.factor)."""


class PasswordSource:
    """A `klamm.rpc.login.SaslSource` of SCRAM or PLAIN. It reads a password file again for each login, so that the
    password may change while a client runs.

    Raises ConfigError for an unusable file, or for a password or name that the mechanism cannot carry."""

    def __init__(self, mechanism_name: str, login: PasswordLogin) -> None:
        self.mechanism_name = mechanism_name
        self._scram = ScramMechanism.of_name(mechanism_name)
        self._login = login
        try:
            self._client()
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def client(self) -> SaslClient:
        try:
            return self._client()
        except ValueError as error:
            # The file may be replaced soon, so allow a retry.
            raise CallFailed(Status.UNAVAILABLE, str(error)) from None

    def _client(self) -> SaslClient:
        login = self._login
        password = login.password if login.password_file is None else read_password(login.password_file)
        assert password is not None, "a login has a password or a file"
        try:
            f"{login.name}{password.reveal()}".encode()
        except UnicodeEncodeError:
            raise ConfigError("sasl.username or sasl.password is no text that UTF-8 can carry") from None
        if self._scram is None:
            return PlainClient(login.name, password)
        nonce = base64.b64encode(PROCESS.get().randbytes(_NONCE_BYTES)).decode()
        return ScramClient(self._scram, login.name, password, nonce=nonce)


class TokenSource:
    """A `klamm.rpc.login.SaslSource` of OAUTHBEARER. All connections share the token of a token endpoint for most of
    its lifetime. A callback is called for each login.

    Raises ConfigError for a URL that is not allowed."""

    mechanism_name = "OAUTHBEARER"

    def __init__(self, login: TokenLogin, *, timeout_s: float, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._login = login
        self._timeout_s = timeout_s
        self._clock_s = clock_s
        self._kept: Secret | None = None
        self._kept_until_s = 0.0
        self._lock = threading.RLock()
        """The lock of the thread that requests a token. The other threads wait and then use its token."""
        if login.url:
            # Import here: the module loads urllib, which other clients do not need.
            from klamm.security.token_endpoint import check_allowed

            check_allowed(login.url)

    def client(self) -> SaslClient:
        callback = self._login.callback
        token = self._given() if callback is None else self._called(callback)
        try:
            return OAuthBearerClient(token, self._login.extensions)
        except ValueError as error:
            raise LoginFailed(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from None

    def _given(self) -> Secret:
        with self._lock:
            if self._kept is None or self._clock_s() >= self._kept_until_s:
                given = self._ask()
                self._kept, self._kept_until_s = given.token, self._clock_s() + _RENEWED_AFTER * given.lifetime_s
            return self._kept

    def _ask(self) -> GivenToken:
        from klamm.security.token_endpoint import TokenEndpointError, fetch_token

        login = self._login
        assert login.client_secret is not None, "credentials go with a URL"
        try:
            return fetch_token(login.url, login.client_id, login.client_secret, login.scope, timeout_s=self._timeout_s)
        except TokenEndpointError as error:
            if error.is_passing:
                raise CallFailed(Status.UNAVAILABLE, f"no token: {error}") from None
            raise LoginFailed(ErrorCode.SASL_AUTHENTICATION_FAILED, f"no token: {error}") from None

    def _called(self, callback: Callable[[], str]) -> Secret:
        try:
            return Secret(callback())
        except BaseException as error:  # noqa: BLE001 - whatever a user's function raises, also SystemExit
            # Do not show the error's text, because it may contain the token.
            raise CallFailed(
                Status.UNAVAILABLE, f"no token: sasl.oauthbearer.token.callback raised {type(error).__name__}"
            ) from None


def read_password(name: str) -> Secret:
    """Returns the first line of the file. Raises ConfigError if the file cannot be read, is empty, or may be read by
    every user of the machine."""
    try:
        with Path(name).open("rb") as file:
            if (mode := stat.S_IMODE(Path(name).stat().st_mode)) & stat.S_IRWXO:
                raise ConfigError(
                    f"{_FILE}={name}: everybody on this machine may read or write the password (mode {mode:04o}),"
                    " expected 0600 or 0640"
                )
            line = file.readline(PASSWORD_BYTES_MAX).rstrip(b"\r\n")
        password = line.decode()
    except OSError as error:
        raise ConfigError(f"{_FILE}={name}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{_FILE}={name}: the password is not UTF-8") from None
    if not password:
        raise ConfigError(f"{_FILE}={name}: its first line is empty, expected the password")
    return Secret(password)
