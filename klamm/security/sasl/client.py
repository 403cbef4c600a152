"""What the client's side of any mechanism is: the code that logs in over a connection needs no more of it."""

from __future__ import annotations

from typing import Protocol


class SaslClient(Protocol):
    """One login of a client. `first` is sent, then `step` answers each message of the server until it gives None."""

    mechanism_name: str

    def first(self) -> bytes:
        """The first message."""

    def step(self, challenge: bytes) -> bytes | None:
        """Returns the answer to the server's message. Returns None if the login is complete and the server has proved
        its identity.

        Raises SaslAuthenticationFailedError when the server's message is wrong; the texts show no secret."""
