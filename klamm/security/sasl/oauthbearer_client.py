"""A client's login by OAUTHBEARER (RFC 7628, KIP-255): a token that somebody else has given out, so only for
connections that are encrypted.

    first message   n,,^Aauth=Bearer TOKEN^A[name=value^A]...^A        the pairs: SASL extensions (KIP-342)
    refused         JSON with `status`, which the client answers with ^A to hear the end of it
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from klamm.errors import ErrorCode
from klamm.secret import Secret

_TOKEN: Final = re.compile(r"[-_.~+/A-Za-z0-9]+=*")
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_STATUS: Final = re.compile(rb'"status"\s*:\s*"([a-z_]{1,40})"')


class OAuthBearerClient:
    """A `SaslClient` of OAUTHBEARER. Raises ValueError for a token or extension that the message cannot carry, without
    showing it."""

    mechanism_name = "OAUTHBEARER"

    def __init__(self, token: Secret, extensions: Mapping[str, str] | None = None) -> None:
        if not _TOKEN.fullmatch(token.reveal()):
            raise ValueError("the token given is no bearer token (RFC 6750)")
        for name, value in (extensions or {}).items():
            if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
                raise ValueError(f"the SASL extension {name!r} cannot be sent: expected letters, and printable ASCII")
        self._token = token
        self._extensions = dict(extensions or {})
        self._status = ""

    def first(self) -> bytes:
        pairs = "".join(f"{name}={value}\x01" for name, value in self._extensions.items())
        return f"n,,\x01auth=Bearer {self._token.reveal()}\x01{pairs}\x01".encode()

    def step(self, challenge: bytes) -> bytes | None:
        """Returns the answer to the server's message (`SaslClient.step`)."""
        if self._status:
            raise ErrorCode.SASL_AUTHENTICATION_FAILED.exception(
                f"login by OAUTHBEARER: the server refuses the token: {self._status}"
            )
        if not challenge:
            return None
        status = _STATUS.search(challenge)
        self._status = status[1].decode() if status else "without a status"
        return b"\x01"
