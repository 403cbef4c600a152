"""What the servers' side of any mechanism is.

A `SaslDoor` makes a server for each login, gives `step` every message of the client, and answers what that says.
"""

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
        """`user` is who the client said to be; empty: it has not said."""
        super().__init__(cause)
        self.user = user


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticated:
    """The login is complete."""

    name: str
    """The user."""
    proven: Found | None = None
    """The credential whose password the client has; None: it brought something else."""
    answer: bytes = b""
    """The last message to the client."""
    expires_at_s: float | None = None
    """When the login ends, in seconds since 1970; None: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification(Generic[FoundT]):
    """A password or token has to be checked, which takes CPU: `check` may run in another thread, and `decide` gets what
    it found."""

    check: Callable[[], FoundT]
    decide: Callable[[FoundT], bytes | Authenticated]
    """Returns the answer for the check's result. Raises SaslRefusedError."""


class SaslServer(Protocol):
    """One login; over as soon as `step` raises or gives Authenticated."""

    def step(self, data: bytes) -> bytes | Verification[Any] | Authenticated:
        """Returns the consequence of the client's message: an answer to send, a check to run, or the end of the login.

        Raises SaslRefusedError, and nothing else whatever the bytes are."""
