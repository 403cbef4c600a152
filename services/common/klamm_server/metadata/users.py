"""Describes the SCRAM credentials of an image (KIP-554) for both protocols, without their secrets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from klamm.errors import ErrorCode
from klamm.security.sasl.scram_keys import ScramMechanism
from klamm_server.metadata.image import MetadataImage


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedUser:
    """A user's credentials, or the error why the user cannot be described."""

    name: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    credentials: tuple[tuple[ScramMechanism, int], ...] = ()
    """The mechanisms of the user, with the iterations of each."""


def described_users(image: MetadataImage, names: Sequence[str]) -> list[DescribedUser]:
    """Describes the users of `names`, each once, in this order. Without names, describes all users, sorted."""
    times = Counter(names) or Counter(sorted({name for name, _ in image.scram_credentials}))
    return [_described(image, name, asked) for name, asked in times.items()]


def _described(image: MetadataImage, name: str, times: int) -> DescribedUser:
    if times > 1:
        return _refused(name, ErrorCode.DUPLICATE_RESOURCE, f"is named {times} times")
    found = image.scram_credentials
    credentials = tuple(
        (mechanism, found[name, mechanism].iterations) for mechanism in ScramMechanism if (name, mechanism) in found
    )
    if not credentials:
        return _refused(name, ErrorCode.RESOURCE_NOT_FOUND, "has no credentials")
    return DescribedUser(name=name, credentials=credentials)


def _refused(name: str, code: ErrorCode, problem: str) -> DescribedUser:
    return DescribedUser(name=name, error_code=code, error_message=f"user {name!r} {problem}")
