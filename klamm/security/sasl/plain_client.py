"""A client's login by PLAIN (RFC 4616). Name and password are in one message, so use it only over encrypted
connections."""

from __future__ import annotations

from klamm.secret import Secret


class PlainClient:
    """A `SaslClient` of PLAIN. Raises ValueError for a name or password with NUL, which PLAIN cannot carry."""

    mechanism_name = "PLAIN"

    def __init__(self, name: str, password: Secret) -> None:
        if "\0" in name or "\0" in password.reveal():
            raise ValueError("a name or password with NUL cannot be sent by PLAIN")
        self._name = name
        self._password = password

    def first(self) -> bytes:
        return f"\0{self._name}\0{self._password.reveal()}".encode()

    def step(self, challenge: bytes) -> None:
        """Accepts the server's only answer, which is empty, and ends the login."""
