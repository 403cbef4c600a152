"""The servers' side of OAUTHBEARER (RFC 7628, KIP-255).

    FIRST ─first message / Verification─► Authenticated
                                     └──► FAILED ─JSON with a status / any message─► SaslRefusedError

`token_rules` has the rules for tokens. A token without a signature is always refused, while Kafka accepts one by
default. As in Kafka, an authorization id is empty or the name in the token, and SASL extensions are ignored."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final

from klamm_server.security.sasl.server import Authenticated, SaslRefusedError, Verification
from klamm_server.security.sasl.token_rules import TokenRefusedError, ValidToken

_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authzid>(?:[^=,\x00\x01]|=2C|=3D)+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTH: Final = re.compile(r"bearer +(?P<token>[-_.A-Za-z0-9]+)", re.IGNORECASE)
_INVALID: Final = b'{"status":"invalid_token"}'


class OAuthBearerServer:
    """A `SaslServer`. `validate` gives what a token says, or raises TokenRefusedError; it may run in another thread."""

    def __init__(self, validate: Callable[[str], ValidToken]) -> None:
        self._validate = validate
        self._started = False
        self._refusal: TokenRefusedError | None = None

    def step(self, data: bytes) -> Verification[ValidToken | TokenRefusedError]:
        """Returns the answer to the client's message, or the check of its token (`SaslServer.step`)."""
        if self._refusal is not None:
            raise SaslRefusedError(f"token refused: {self._refusal}")
        if self._started:
            raise SaslRefusedError("the client sent a message after the end of the login")
        self._started = True
        token, authzid = _parse(data)
        return Verification(check=partial(self._check, token), decide=partial(self._decide, authzid))

    def _check(self, token: str) -> ValidToken | TokenRefusedError:
        try:
            return self._validate(token)
        except TokenRefusedError as refusal:
            return refusal

    def _decide(self, authzid: str, found: ValidToken | TokenRefusedError) -> bytes | Authenticated:
        if isinstance(found, TokenRefusedError):
            self._refusal = found
            return _INVALID
        if authzid not in ("", found.subject):
            raise SaslRefusedError(
                f"user {found.subject!r} asked to act as {authzid!r}; expected the user's own name", found.subject
            )
        return Authenticated(name=found.subject, expires_at_s=found.expires_at_s)


def _parse(data: bytes) -> tuple[str, str]:
    """The token, and the authorization id. Errors show nothing of the message."""
    try:
        match = _FIRST.fullmatch(data.decode())
    except UnicodeDecodeError:
        raise SaslRefusedError("the client's message is not UTF-8") from None
    if match is None:
        raise SaslRefusedError("the client's message is not an OAUTHBEARER message")
    values = [pair[5:] for pair in match["pairs"].split("\x01") if pair.startswith("auth=")]
    bearer = _AUTH.fullmatch(values[0]) if len(values) == 1 else None
    if bearer is None:
        raise SaslRefusedError("the client's message does not have exactly one bearer token")
    return bearer["token"], (match["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
