"""The servers' side of PLAIN (RFC 4616) against the users of SCRAM: there is one store of users, and no file of
passwords.

    one message: [authzid] NUL name NUL password

As in Kafka, an authorization id is empty or the user's own name, and neither name nor password is empty. A password
that was right a moment ago is not checked again.
"""

from __future__ import annotations

from functools import partial

from klamm.secret import Secret
from klamm.security.sasl.scram_keys import matches
from klamm_server.security.sasl.credential_store import CredentialStore, Found
from klamm_server.security.sasl.known_passwords import KnownPasswords
from klamm_server.security.sasl.server import Authenticated, SaslRefusedError, Verification


class PlainServer:
    """A `SaslServer`: one step, whose password is to be checked. `now_ms` is when the login begins."""

    def __init__(self, credentials: CredentialStore, known: KnownPasswords, now_ms: int) -> None:
        self._credentials = credentials
        self._known = known
        self._now_ms = now_ms
        self._over = False

    def step(self, data: bytes) -> Verification[bool] | Authenticated:
        """Returns the outcome for the client's message, or the check of its password (`SaslServer.step`)."""
        if self._over:
            raise SaslRefusedError("the client sent a message after the end of the login")
        self._over = True
        name, password = _parse(data)
        found = self._credentials.find_any(name)
        if found.exists and self._known.is_known(found, password, self._now_ms):
            return Authenticated(name=name, proven=found)
        return Verification(
            check=partial(matches, found.mechanism, password, found.credential),
            decide=partial(self._decide, name, password, found),
        )

    def _decide(self, name: str, password: Secret, found: Found, right: bool) -> Authenticated:
        if not found.exists:
            raise SaslRefusedError(f"user {name!r} has no credential", name)
        if not right:
            raise SaslRefusedError(f"user {name!r}: wrong password", name)
        self._known.remember(found, password, self._now_ms)
        return Authenticated(name=name, proven=found)


def _parse(data: bytes) -> tuple[str, Secret]:
    try:
        parts = data.decode().split("\0")
    except UnicodeDecodeError:
        # Not as the cause: that error holds the bytes, and with them the password.
        raise SaslRefusedError("the client's message is not UTF-8") from None
    if len(parts) != 3:
        raise SaslRefusedError(f"the client's message has {len(parts)} parts; expected 3")
    authzid, name, password = parts
    if not name or not password:
        raise SaslRefusedError("the login has no user name or no password")
    if authzid not in ("", name):
        raise SaslRefusedError(f"user {name!r} asked to act as {authzid!r}; expected the user's own name", name)
    return name, Secret(password)
