"""Makes certificates for a private network: a CA, and the certificates that it signs for servers and clients (ECDSA
P-256).

Everything is PEM in memory. The caller that writes the files sets their permissions. These certificates are for tests
and for `klamm certs dev`. Do not use such a CA elsewhere, because its key lies beside the certificates."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, CertificateBuilder, GeneralName, KeyUsage, Name

VALID_DAYS: Final = 90
_CLOCKS_DIFFER: Final = timedelta(minutes=5)
"""Certificates are valid from this long ago, because clocks of machines differ."""


@dataclass(frozen=True, slots=True)
class SignedKey:
    """A private key with its certificate."""

    private_key: EllipticCurvePrivateKey
    certificate: Certificate

    @classmethod
    def read(cls, key_pem: str, certificate_pem: str) -> Self:
        """Reads a key and its certificate from PEM; the key is not encrypted. Raises ValueError for other text, or a
        key of another kind."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        key = load_pem_private_key(key_pem.encode(), None)
        if not isinstance(key, EllipticCurvePrivateKey):
            raise ValueError("the key is not one of an elliptic curve")
        return cls(key, x509.load_pem_x509_certificate(certificate_pem.encode()))

    @property
    def key_pem(self) -> str:
        """The private key (PKCS #8), not encrypted."""
        return self.encrypted_key_pem(None)

    def encrypted_key_pem(self, password: str | None) -> str:
        """Returns the private key (PKCS #8), encrypted if there is a password."""
        from cryptography.hazmat.primitives import serialization

        how = (
            serialization.NoEncryption()
            if password is None
            else serialization.BestAvailableEncryption(password.encode())
        )
        return self.private_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how
        ).decode()

    @property
    def certificate_pem(self) -> str:
        """The certificate as PEM."""
        from cryptography.hazmat.primitives.serialization import Encoding

        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def keystore_pem(self) -> str:
        """The key and the certificate together, in the form of `ssl.keystore.location`."""
        return self.key_pem + self.certificate_pem


@dataclass(frozen=True, slots=True)
class DevCa:
    """A CA that signs certificates for servers and clients."""

    signed: SignedKey

    @classmethod
    def make(cls, *, now: datetime, valid_days: int = VALID_DAYS, name: str = "Klamm development CA") -> Self:
        """Makes a new CA, which is valid from `now`."""
        from cryptography import x509

        subject = _name(name)
        key = _new_key()
        builder = _builder(subject, subject, key, now, valid_days)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        return cls(SignedKey(key, _sign(builder, key, key)))

    def for_server(self, name: str, hosts: Iterable[str], *, now: datetime, valid_days: int = VALID_DAYS) -> SignedKey:
        """Returns key and certificate of a server that clients dial by these names and addresses. Servers also show it
        to each other as clients."""
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID as Use

        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        return self._signed(name, [Use.SERVER_AUTH, Use.CLIENT_AUTH], now, valid_days, names)

    def for_client(self, name: str, *, now: datetime, valid_days: int = VALID_DAYS) -> SignedKey:
        """Returns key and certificate of a client."""
        from cryptography.x509.oid import ExtendedKeyUsageOID as Use

        return self._signed(name, [Use.CLIENT_AUTH], now, valid_days)

    def _signed(
        self,
        name: str,
        uses: Iterable[x509.ObjectIdentifier],
        now: datetime,
        valid_days: int,
        names: x509.SubjectAlternativeName | None = None,
    ) -> SignedKey:
        from cryptography import x509

        key = _new_key()
        builder = _builder(_name(name), self.signed.certificate.subject, key, now, valid_days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        return SignedKey(key, _sign(builder, key, self.signed.private_key))


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _name(common_name: str) -> Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: Name, issuer: Name, key: EllipticCurvePrivateKey, now: datetime, valid_days: int
) -> CertificateBuilder:
    from cryptography import x509

    until = now + timedelta(days=valid_days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, until) - _CLOCKS_DIFFER)
        .not_valid_after(until)
    )


def _usage(*, signs_certificates: bool) -> KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _sign(
    builder: CertificateBuilder, key: EllipticCurvePrivateKey, signing_key: EllipticCurvePrivateKey
) -> Certificate:
    """Signs a certificate. It has the identifiers of both keys, by which verifiers find the CA."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    subject_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    authority_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key())
    return (
        builder.add_extension(subject_id, critical=False)
        .add_extension(authority_id, critical=False)
        .sign(signing_key, hashes.SHA256())
    )
