"""The interface of the client's side of every SASL mechanism."""

from __future__ import annotations

from typing import Protocol


class SaslClient(Protocol):
    """One login of a client. The caller sends `first`, and then the answers that `step` returns to the server's
    messages, until it returns None."""

    mechanism_name: str

    def first(self) -> bytes:
        """Returns the first message."""

    def step(self, challenge: bytes) -> bytes | None:
        """Returns the answer to the server's message. Returns None if the login is complete and the server has proved
        its identity.

        Raises SaslAuthenticationFailedError when the server's message is wrong; the texts show no secret."""
