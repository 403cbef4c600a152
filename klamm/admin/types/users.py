"""Users who log in by SCRAM (KIP-554)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from klamm.security.sasl.scram_keys import ScramMechanism

DEFAULT_ITERATIONS: Final = 8192


@dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    """The public part of a credential."""

    mechanism: ScramMechanism
    iterations: int = DEFAULT_ITERATIONS
    """How often the salted password is hashed: 4,096 to 16,384."""


@dataclass(frozen=True, slots=True)
class UserScramCredentialsDescription:
    """A user's credentials, at most one of each mechanism."""

    name: str
    credential_infos: tuple[ScramCredentialInfo, ...]


@dataclass(frozen=True, slots=True)
class UserScramCredentialUpsertion:
    """A credential to be set. The password never leaves the client; servers get a hash of it."""

    user: str
    credential_info: ScramCredentialInfo
    password: str = field(repr=False)
    salt: bytes | None = field(default=None, repr=False)
    """The salt, or None for 32 random bytes."""


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion:
    """A credential to be removed."""

    user: str
    mechanism: ScramMechanism
