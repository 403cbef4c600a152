"""A client's login by SCRAM-SHA-256 or -512 (RFC 5802, 7677): the password stays here, and the server proves itself
too.

FIRST ─client first─► SALTED ─server first / client final─► PROVED ─server final─► done
"""

from __future__ import annotations

import hmac

from klamm.errors import ErrorCode
from klamm.secret import Secret
from klamm.security.sasl.scram_keys import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramMechanism,
    client_proof,
    salted_password,
    server_key,
    sign,
)
from klamm.security.sasl.scram_messages import (
    ClientFirst,
    ScramMessageError,
    ServerFirst,
    client_final_without_proof,
    parse_server_final,
    parse_server_first,
    with_proof,
)


class ScramClient:
    """A `SaslClient` of SCRAM. `nonce` is printable ASCII without commas and new for each login, for example 24 random
    bytes in base64."""

    def __init__(self, mechanism: ScramMechanism, name: str, password: Secret, *, nonce: str) -> None:
        self.mechanism_name = mechanism.mechanism_name
        self._mechanism = mechanism
        self._password = password
        self._first = ClientFirst(name=name, nonce=nonce)
        self._expected_signature = b""

    def first(self) -> bytes:
        return self._first.encode()

    def step(self, challenge: bytes) -> bytes | None:
        """Returns the answer to the server's message (`SaslClient.step`). The first call takes milliseconds, because it
        computes `salted_password`."""
        try:
            if not self._expected_signature:
                return self._prove(challenge, parse_server_first(challenge))
            signature = parse_server_final(challenge)
        except ScramMessageError as error:
            raise _failure(f"the server's message: {error}") from error
        if not hmac.compare_digest(signature, self._expected_signature):
            raise _failure("the server's signature is wrong: it does not know the user's password")
        return None

    def _prove(self, challenge: bytes, server_first: ServerFirst) -> bytes:
        ours, joined = self._first.nonce.encode(), server_first.nonce.encode()
        if len(joined) <= len(ours) or not hmac.compare_digest(joined[: len(ours)], ours):
            raise _failure("the server's nonce does not continue the client's")
        if not MIN_ITERATIONS <= server_first.iterations <= MAX_ITERATIONS:
            asked = f"the server asks for {server_first.iterations} iterations"
            raise _failure(f"{asked}; expected {MIN_ITERATIONS} to {MAX_ITERATIONS}")
        salted = salted_password(self._mechanism, self._password, server_first.salt, server_first.iterations)
        without_proof = client_final_without_proof(self._first.gs2_header, server_first.nonce)
        auth_message = b",".join((self._first.bare, challenge, without_proof))
        self._expected_signature = sign(self._mechanism, server_key(self._mechanism, salted), auth_message)
        return with_proof(without_proof, client_proof(self._mechanism, salted, auth_message))


def _failure(cause: str) -> Exception:
    return ErrorCode.SASL_AUTHENTICATION_FAILED.exception(f"login by SCRAM: {cause}")
