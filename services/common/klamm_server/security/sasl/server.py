"""The interface of the servers' side of every SASL mechanism.

A `SaslAuthenticator` makes a server for each login, gives `step` every message of the client, and sends its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from klamm.errors import KlammError
from klamm_server.security.sasl.credential_store import Found

FoundT = TypeVar("FoundT")


class SaslRefusedError(KlammError):
    """The login has failed. The text is the cause, for the audit log alone: a client hears one sentence for every
    cause, or it could tell users from others. It shows no secret."""

    def __init__(self, cause: str, user: str = "") -> None:
        """Makes the error. `user` is the name that the client gave, or empty if it has given none."""
        super().__init__(cause)
        self.user = user


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticated:
    """The login is complete."""

    name: str
    """The name of the user."""
    proven: Found | None = None
    """The credential whose password the client has, or None if it used another proof."""
    answer: bytes = b""
    """The last message to the client."""
    expires_at_s: float | None = None
    """The end of the login in seconds since 1970, or None if it has no end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification(Generic[FoundT]):
    """A password or token has to be checked, which takes CPU: `check` may run in another thread, and `decide` gets what
    it found."""

    check: Callable[[], FoundT]
    decide: Callable[[FoundT], bytes | Authenticated]
    """Returns the answer for the check's result. Raises SaslRefusedError."""


class SaslServer(Protocol):
    """The server's side of one login. It ends when `step` raises or returns Authenticated."""

    def step(self, data: bytes) -> bytes | Verification[Any] | Authenticated:
        """Returns the consequence of the client's message: an answer to send, a check to run, or the end of the login.

        Raises SaslRefusedError, and nothing else whatever the bytes are."""
