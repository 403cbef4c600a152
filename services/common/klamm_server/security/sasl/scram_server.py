"""The servers' side of SCRAM-SHA-256 and -512 (RFC 5802, 7677).

    FIRST ─client first / server first─► FINAL ─client final / Authenticated─► ENDED
      └──────────── anything wrong: SaslRefusedError ─────────────┴──────────────► ENDED

As in Kafka, an authorization id is empty or the user's own name. Refused, where Kafka does something else: `tokenauth`,
for there are no delegation tokens; a user who does not exist, only with the last message, as a wrong password.
"""

from __future__ import annotations

import hmac
from enum import Enum

from klamm.security.sasl.scram_keys import ScramMechanism, proves, sign
from klamm.security.sasl.scram_messages import (
    ClientFirst,
    ScramMessageError,
    ServerFirst,
    parse_client_final,
    parse_client_first,
    server_final,
)
from klamm_server.security.sasl.credential_store import CredentialStore, Found
from klamm_server.security.sasl.server import Authenticated, SaslRefusedError


class _State(Enum):
    FIRST = "expects the client's first message"
    FINAL = "expects the client's proof"
    ENDED = "is over"


class ScramServer:
    """A `SaslServer`. `nonce` is the server's part: printable ASCII without commas, new for each login."""

    def __init__(self, mechanism: ScramMechanism, credentials: CredentialStore, *, nonce: str) -> None:
        self._mechanism = mechanism
        self._credentials = credentials
        self._nonce = nonce
        self._state = _State.FIRST

    def step(self, data: bytes) -> bytes | Authenticated:
        """Returns the answer to the client's first or final message (`SaslServer.step`)."""
        state, self._state = self._state, _State.ENDED
        try:
            if state is _State.FIRST:
                return self._begin(parse_client_first(data))
            if state is _State.FINAL:
                return self._verify(data)
        except ScramMessageError as error:
            raise SaslRefusedError(f"the client's message: {error}") from error
        raise SaslRefusedError("the client sent a message after the end of the login")

    def _begin(self, first: ClientFirst) -> bytes:
        if first.authzid not in ("", first.name):
            raise SaslRefusedError(
                f"user {first.name!r} asked to act as {first.authzid!r}; expected the user's own name", first.name
            )
        if any(key == "tokenauth" for key, _ in first.extensions):
            raise SaslRefusedError("the client logs in with a delegation token, which Klamm does not support")
        self._first = first
        self._found: Found = self._credentials.find(self._mechanism, first.name)
        credential = self._found.credential
        self._answer = ServerFirst(
            nonce=first.nonce + self._nonce, salt=credential.salt, iterations=credential.iterations
        ).encode()
        self._state = _State.FINAL
        return self._answer

    def _verify(self, data: bytes) -> Authenticated:
        final, first, found = parse_client_final(data), self._first, self._found
        if not hmac.compare_digest(final.nonce.encode(), (first.nonce + self._nonce).encode()):
            raise SaslRefusedError(
                f"user {first.name!r}: the nonce differs from the nonce of the first message", first.name
            )
        if not hmac.compare_digest(final.channel_binding, first.gs2_header):
            raise SaslRefusedError(
                f"user {first.name!r}: the last message does not repeat the first message's header", first.name
            )
        auth_message = b",".join((first.bare, self._answer, final.without_proof))
        proven = proves(self._mechanism, final.proof, found.credential, auth_message)
        if not found.exists:
            raise SaslRefusedError(
                f"user {first.name!r} has no credential for {self._mechanism.mechanism_name}", first.name
            )
        if not proven:
            raise SaslRefusedError(f"user {first.name!r}: wrong password", first.name)
        signature = sign(self._mechanism, found.credential.server_key, auth_message)
        return Authenticated(name=first.name, proven=found, answer=server_final(signature))
