"""Describes the certificates in a PEM file for users."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from klamm.errors import ConfigError
from klamm.security.distinguished_name import java_text, subject_text
from klamm.security.material import PRIVATE_KEY, alternative_names, read_certificates, split_private_key

if TYPE_CHECKING:
    from cryptography.x509 import Certificate


class KeyMatch(enum.Enum):
    """Tells whether a file's private key belongs to its first certificate."""

    YES = "yes"
    NO = "no"
    NO_KEY = "there is no private key in the file"
    ENCRYPTED = "the private key is encrypted"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFacts:
    """The facts about one certificate."""

    subject: str
    """The subject in Java's form, which mapping rules and ACLs use."""
    names: tuple[str, ...]
    """The subject alternative names, as TYPE:value."""
    issuer: str
    not_before: datetime
    not_after: datetime
    days_left: int
    """The number of whole days until the certificate expires. It is negative after that."""


def certificate_facts(source: str, pem: bytes, *, now: datetime) -> list[CertificateFacts]:
    """Returns the facts about every certificate in the PEM, in order. If there is none, raises ConfigError, which names
    `source`."""
    return [_facts(certificate, now) for certificate in read_certificates(source, pem)]


def key_match(source: str, pem: bytes) -> KeyMatch:
    """Returns whether the key in the PEM belongs to its first certificate. Raises ConfigError for a broken key."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if PRIVATE_KEY not in pem:
        return KeyMatch.NO_KEY
    if b"ENCRYPTED" in pem:
        return KeyMatch.ENCRYPTED
    try:
        key = load_pem_private_key(split_private_key(pem), None)
    except ValueError:
        raise ConfigError(f"{source}: the private key in it is broken or of an unknown kind") from None
    matches = key.public_key() == read_certificates(source, pem)[0].public_key()
    return KeyMatch.YES if matches else KeyMatch.NO


def _facts(certificate: Certificate, now: datetime) -> CertificateFacts:
    from cryptography.hazmat.primitives.serialization import Encoding

    return CertificateFacts(
        subject=subject_text(certificate.public_bytes(Encoding.DER)),
        names=tuple(alternative_names(certificate)),
        issuer=java_text(certificate.issuer.public_bytes()),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        days_left=(certificate.not_valid_after_utc - now) // timedelta(days=1),
    )
