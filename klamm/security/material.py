"""Reads and checks the keys and certificates that settings name, before anything uses them.

`load_material` reads and decrypts the files, and returns PEM in memory that is ready for handshakes. It raises
ConfigError, which names the setting and never contains a key or a password."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klamm.errors import ConfigError
from klamm.secret import Secret
from klamm.security.distinguished_name import subject_text
from klamm.security.tls_settings import TlsSettings

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

FILE_BYTES_MAX: Final = 4 << 20
"""The maximum size of a file. All CAs that browsers trust take 220 KiB."""

_KEYSTORE_FILE: Final = "ssl.keystore.location"
_TRUSTSTORE_FILE: Final = "ssl.truststore.location"
PRIVATE_KEY: Final = b"PRIVATE KEY-----"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsMaterial:
    """The keys and certificates of one end of connections, and the CAs that it trusts."""

    key: Secret | None
    """The private key as PEM (PKCS #8), not encrypted. None if this end shows no certificate."""
    chain: str
    """The certificate chain as PEM, the own certificate first. Empty without a key."""
    trusted: str | None
    """The certificates of the trusted CAs as PEM, or None if no truststore is set."""
    expires: datetime | None
    """The time at which the first certificate of the chain expires."""


class Identity(NamedTuple):
    """The names by which others know the owner of a certificate."""

    subject: str
    """The distinguished name in Java's form."""
    names: frozenset[str]
    """The certificate's subject alternative names, as TYPE:value."""


def load_material(settings: TlsSettings, *, now: datetime) -> TlsMaterial:
    """Loads the key, the certificates and the trusted CAs that the settings name. `now` is an aware time.

    Raises ConfigError if a file cannot be read, may be read by others or is not PEM, if the key cannot be decrypted or
    belongs to another certificate, or if a certificate is not valid now."""
    _require_cryptography()
    trusted = _trusted(settings)
    if not settings.has_keystore:
        return TlsMaterial(key=None, chain="", trusted=trusted, expires=None)
    source, key_pem, chain_pem = _keystore(settings)
    key = _private_key(source, key_pem, settings.ssl_key_password)
    chain = read_certificates(source.chain, chain_pem)
    if key.public_key() != chain[0].public_key():
        raise ConfigError(f"{source.key}: the private key is not the one of the first certificate")
    for certificate in chain:
        _check_valid(source.chain, certificate, now)
    return TlsMaterial(
        key=_unencrypted(key),
        chain=_pem(chain),
        trusted=trusted,
        expires=min(cert.not_valid_after_utc for cert in chain),
    )


def identity(material: TlsMaterial) -> Identity:
    """Returns the identity in the certificate of this material, which must have one."""
    from cryptography import x509

    leaf = x509.load_pem_x509_certificate(material.chain.encode())
    return Identity(subject_text(_der(leaf)), frozenset(alternative_names(leaf)))


def identity_changes(old: TlsMaterial, new: TlsMaterial) -> Identity | None:
    """Returns the changes by which peers that know `old` would not recognize `new`, as Kafka checks them. These are the
    new subject, or empty text if it is unchanged, and the names that are missing. Returns None if there are none."""
    before, after = identity(old), identity(new)
    subject = after.subject if after.subject != before.subject else ""
    missing = before.names - after.names
    return Identity(subject, missing) if subject or missing else None


def alternative_names(certificate: Certificate) -> list[str]:
    """Returns the certificate's subject alternative names, as `DNS:host`, `IP:address`, or with another type."""
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    kinds: dict[type, str] = {
        x509.DNSName: "DNS",
        x509.IPAddress: "IP",
        x509.RFC822Name: "email",
        x509.UniformResourceIdentifier: "URI",
    }
    return [f"{kinds.get(type(name), type(name).__name__)}:{name.value}" for name in names]


def _require_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ModuleNotFoundError:
        raise ConfigError("TLS needs the package cryptography: pip install 'klamm[security]'") from None


def read_certificates(source: str, pem: bytes) -> list[Certificate]:
    """Returns every certificate in the PEM. If there is none, or a broken one, raises ConfigError, which names
    `source`."""
    from cryptography import x509

    if b"-----BEGIN CERTIFICATE-----" not in pem:
        raise ConfigError(f"{source}: there is no certificate in it, expected PEM with BEGIN CERTIFICATE")
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise ConfigError(f"{source}: a certificate in it is broken: {error}") from None


class _Source(NamedTuple):
    """The settings from which a key and its certificates are read."""

    key: str
    chain: str


def _keystore(settings: TlsSettings) -> tuple[_Source, bytes, bytes]:
    if settings.ssl_keystore_location is not None:
        pem = _read(_KEYSTORE_FILE, settings.ssl_keystore_location, is_private=True)
        named = f"{_KEYSTORE_FILE}={settings.ssl_keystore_location}"
        return _Source(named, named), pem, pem
    assert settings.ssl_keystore_key is not None
    assert settings.ssl_keystore_certificate_chain is not None
    return (
        _Source("ssl.keystore.key", "ssl.keystore.certificate.chain"),
        settings.ssl_keystore_key.reveal().encode(),
        settings.ssl_keystore_certificate_chain.encode(),
    )


def _trusted(settings: TlsSettings) -> str | None:
    if settings.ssl_truststore_location is not None:
        named = f"{_TRUSTSTORE_FILE}={settings.ssl_truststore_location}"
        return _pem(read_certificates(named, _read(_TRUSTSTORE_FILE, settings.ssl_truststore_location)))
    if settings.ssl_truststore_certificates is not None:
        return _pem(read_certificates("ssl.truststore.certificates", settings.ssl_truststore_certificates.encode()))
    return None


def _read(setting: str, name: str, *, is_private: bool = False) -> bytes:
    path = Path(name)
    try:
        with path.open("rb") as file:
            if is_private and (mode := stat.S_IMODE(path.stat().st_mode)) & stat.S_IRWXO:
                raise ConfigError(
                    f"{setting}={name}: everybody on this machine may read or write the private key (mode {mode:04o}),"
                    " expected 0600 or 0640"
                )
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{setting}={name}: cannot be read: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"{setting}={name}: larger than {FILE_BYTES_MAX} bytes, expected PEM")
    return data


def _private_key(source: _Source, pem: bytes, password: Secret | None) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if PRIVATE_KEY not in pem:
        raise ConfigError(f"{source.key}: there is no private key in it, expected PEM with BEGIN PRIVATE KEY")
    encrypted = b"ENCRYPTED" in pem
    if encrypted and password is None:
        raise ConfigError(f"{source.key}: the private key is encrypted, and ssl.key.password is not set")
    try:
        return load_pem_private_key(split_private_key(pem), _password(password) if encrypted else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # Do not show the library's text, because it may quote the file.
        cause = "cannot be decrypted with ssl.key.password" if encrypted else "is broken or of an unknown kind"
        raise ConfigError(f"{source.key}: the private key {cause}") from None


def _password(password: Secret | None) -> bytes | None:
    return None if password is None else password.reveal().encode()


def split_private_key(pem: bytes) -> bytes:
    """Returns the first private key of a PEM that has one. A keystore also has certificates."""
    first = pem.index(PRIVATE_KEY)
    begin = pem.rindex(b"-----BEGIN ", 0, first)
    last = pem.find(PRIVATE_KEY, first + len(PRIVATE_KEY))
    return pem[begin : len(pem) if last < 0 else last + len(PRIVATE_KEY)] + b"\n"


def _check_valid(setting: str, certificate: Certificate, now: datetime) -> None:
    subject = subject_text(_der(certificate))
    if certificate.not_valid_after_utc <= now:
        raise ConfigError(f"{setting}: the certificate of {subject} expired at {certificate.not_valid_after_utc}")
    if certificate.not_valid_before_utc > now:
        raise ConfigError(
            f"{setting}: the certificate of {subject} is not valid before {certificate.not_valid_before_utc}"
        )


def _unencrypted(key: Any) -> Secret:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return Secret(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())


def _der(certificate: Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.DER)


def _pem(certificates: list[Certificate]) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return "".join(certificate.public_bytes(Encoding.PEM).decode() for certificate in certificates)
