"""Kafka's `ssl.*` settings, for clients and for single listeners of servers.

Keys and certificates are PEM (KIP-651). Java's own formats are refused with the command that converts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from klamm.errors import ConfigError
from klamm.secret import Secret
from klamm.security.principal_rules import PrincipalRules
from klamm.setting import (
    ConfigType,
    Validator,
    boolean,
    custom,
    definitions,
    integer,
    long,
    one_of,
    parse,
    secret,
    text,
    text_list,
    unknown,
)

PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")

CIPHER_SUITES: Final[Mapping[str, str]] = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
"""The cipher suites that TLS 1.2 may use, with forward secrecy and authenticated encryption: IANA's names and OpenSSL's
names."""

_TO_PKCS12: Final = "keytool -importkeystore -srckeystore STORE.jks -destkeystore STORE.p12 -deststoretype PKCS12"
_TO_PEM: Final = "openssl pkcs12 -in STORE.p12 -out STORE.pem -aes256"


def parse_store_type(value: Any) -> str:
    """Returns PEM. For Java's store types, raises ValueError with the commands that convert them to PEM."""
    if value == "PEM":
        return "PEM"
    if value == "JKS":
        raise ValueError(f"PEM; a JKS store is converted by: {_TO_PKCS12} && {_TO_PEM}")
    if value == "PKCS12":
        raise ValueError(f"PEM; a PKCS12 store is converted by: {_TO_PEM}")
    raise ValueError("PEM")


def parse_identification(value: Any) -> str:
    """Returns https, for any case of letters. Raises ValueError for other values, because names are always verified."""
    if isinstance(value, str) and value.lower() == "https":
        return "https"
    raise ValueError("https: host names are always verified")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The TLS settings that both ends of a connection have."""

    ssl_keystore_type: str = custom(
        "PEM",
        parse_store_type,
        type=ConfigType.STRING,
        doc="The format of the key and its certificates. Only PEM is possible.",
    )
    ssl_keystore_location: str | None = text(
        None,
        doc="A PEM file with the private key and its certificate chain. The key's own certificate comes"
        " first. Only the file's owner and group may have the right to read it.",
    )
    ssl_keystore_key: Secret | None = secret(
        None, doc="The private key as PEM text, instead of a file. Set it together with ssl.keystore.certificate.chain."
    )
    ssl_keystore_certificate_chain: str | None = text(
        None,
        doc="The certificate chain of the key as PEM text. The key's own certificate comes first. Set"
        " it together with ssl.keystore.key.",
    )
    ssl_key_password: Secret | None = secret(None, doc="The password of the private key, if the key is encrypted.")
    ssl_truststore_type: str = custom(
        "PEM",
        parse_store_type,
        type=ConfigType.STRING,
        doc="The format of the trusted certificates. Only PEM is possible.",
    )
    ssl_truststore_location: str | None = text(
        None,
        doc="A PEM file with the certificates of the trusted CAs. Without one, clients trust public CAs.",
    )
    ssl_truststore_certificates: str | None = text(
        None, doc="The certificates of the trusted CAs as PEM text, instead of a file."
    )
    ssl_enabled_protocols: tuple[str, ...] = text_list(
        PROTOCOLS,
        valid=Validator(
            expected=f"a list of {' and '.join(PROTOCOLS)}, at least one",
            accepts=lambda value: bool(value) and set(value) <= set(PROTOCOLS),
        ),
        doc="The enabled versions of TLS. gRPC always enables both.",
    )
    ssl_cipher_suites: tuple[str, ...] = text_list(
        (),
        valid=Validator(
            expected=f"a list of {', '.join(CIPHER_SUITES)} (those of TLS 1.3 cannot be chosen)",
            accepts=lambda value: set(value) <= set(CIPHER_SUITES),
        ),
        doc="The cipher suites of TLS 1.2. Empty: all valid suites. With gRPC it must be empty, because"
        " gRPC chooses the suites itself.",
    )
    ssl_endpoint_identification_algorithm: str = custom(
        "https",
        parse_identification,
        type=ConfigType.STRING,
        doc="How a client verifies that a server's certificate names the host to which the client"
        " connects. It is always https.",
    )
    ssl_reload_interval_ms: int = long(
        10_000, at_least=100, doc="How often the files with keys and certificates are checked for changes."
    )

    def check_tls(self) -> None:
        """Raises ConfigError if two settings of a store contradict each other, or if one lacks the other."""
        if self.ssl_keystore_location is not None and self.ssl_keystore_key is not None:
            raise ConfigError("ssl.keystore.location and ssl.keystore.key are both set, expected one of them")
        if (self.ssl_keystore_key is None) != (self.ssl_keystore_certificate_chain is None):
            raise ConfigError("ssl.keystore.key and ssl.keystore.certificate.chain: one is set, expected both or none")
        if self.ssl_truststore_location is not None and self.ssl_truststore_certificates is not None:
            raise ConfigError(
                "ssl.truststore.location and ssl.truststore.certificates are both set, expected one of them"
            )
        if self.ssl_key_password is not None and not self.has_keystore:
            raise ConfigError("ssl.key.password is set, and no key that it could decrypt")

    def check_grpc(self) -> None:
        """Raises ConfigError for settings that gRPC does not support."""
        if set(self.ssl_enabled_protocols) != set(PROTOCOLS):
            raise ConfigError(
                f"ssl.enabled.protocols={','.join(self.ssl_enabled_protocols)}: gRPC always speaks"
                f" {' and '.join(PROTOCOLS)}, expected both"
            )
        if self.ssl_cipher_suites:
            raise ConfigError(
                f"ssl.cipher.suites={','.join(self.ssl_cipher_suites)}: gRPC chooses its own among ECDHE suites with"
                " authenticated encryption, expected none"
            )

    @property
    def has_keystore(self) -> bool:
        """True if there is a key and a certificate to show."""
        return self.ssl_keystore_location is not None or self.ssl_keystore_key is not None

    @property
    def has_truststore(self) -> bool:
        """True if the trusted CAs are set."""
        return self.ssl_truststore_location is not None or self.ssl_truststore_certificates is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerTlsSettings(TlsSettings):
    """The TLS settings of one listener of a server."""

    ssl_client_auth: str = text(
        "none",
        valid=one_of("none", "requested", "required"),
        doc="Whether clients present a certificate, which then names the client. At SASL_SSL and"
        " GRPC_SASL_SSL, only the value that is set for that listener applies (KIP-684).",
    )
    ssl_principal_mapping_rules: str = text(
        "DEFAULT",
        doc="Rules that turn the distinguished name of a certificate into the client's name (KIP-371),"
        " separated by commas. A rule is RULE:pattern/replacement/[LU], or DEFAULT for the whole"
        " distinguished name. The first rule that matches applies.",
    )
    ssl_allow_dn_changes: bool = boolean(
        False, doc="Whether a new certificate may have another distinguished name than the one that it replaces."
    )
    ssl_allow_san_changes: bool = boolean(
        False, doc="Whether a new certificate may lack names and addresses of the one that it replaces."
    )
    ssl_handshake_timeout_ms: int = integer(
        10_000, at_least=1, doc="The server closes a connection whose TLS handshake takes longer than this."
    )

    @classmethod
    def parse(cls, given: Mapping[str, Any], prefix: str = "") -> Self:
        """Returns the settings in `given`, whose names lack `prefix` (`listener.name.internal.`). Errors add the prefix
        to names. Raises ConfigError."""
        known = definitions(cls)
        for name in given:
            if name not in known:
                raise ConfigError(unknown(f"{prefix}{name}", [f"{prefix}{known_name}" for known_name in known]))
        try:
            settings = cls(**parse(cls, given))
            settings.check_tls()
            settings._check_server()
        except ConfigError as error:
            raise ConfigError(f"{prefix}{error}") from None
        return settings

    def check_grpc_listener(self) -> None:
        """Raises ConfigError for settings that a gRPC listener does not support."""
        self.check_grpc()
        if self.ssl_client_auth == "requested":
            raise ConfigError(
                "ssl.client.auth=requested: gRPC asks every client for a certificate or none, expected none or required"
            )

    def _check_server(self) -> None:
        PrincipalRules.parse(self.ssl_principal_mapping_rules)
        if not self.has_keystore:
            raise ConfigError("ssl.keystore.location is not set: a server needs a key and a certificate")
        if self.ssl_client_auth != "none" and not self.has_truststore:
            raise ConfigError(
                f"ssl.truststore.location is not set: ssl.client.auth={self.ssl_client_auth} needs the certificates"
                " of the CAs whose clients are believed"
            )
