"""Kafka's `sasl.*` settings of a listener where clients log in, and the limits of a login there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import urlsplit

from klamm.errors import ConfigError
from klamm.setting import Validator, boolean, integer, long, parse, text, text_list
from klamm_server.net.listeners import Listener

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512", PLAIN, OAUTHBEARER)
MAX_REAUTH_MS: Final = "connections.max.reauth.ms"
_OAUTH: Final = "sasl.oauthbearer."


def mechanisms_of(name: str) -> tuple[str, ...]:
    """Returns the mechanisms for which a listener's setting may have its own value, as in Kafka."""
    if name == MAX_REAUTH_MS:
        return MECHANISMS
    return (OAUTHBEARER,) if name.startswith(_OAUTH) else ()


def _is_jwks_url(value: str) -> bool:
    parts = urlsplit(value)
    if parts.scheme == "file":
        return parts.netloc in ("", "localhost") and parts.path.startswith("/")
    return parts.scheme == "https" and bool(parts.hostname) and parts.username is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSaslSettings:
    """The login settings of one listener."""

    sasl_enabled_mechanisms: tuple[str, ...] = text_list(
        # Kafka's default GSSAPI is not supported.
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        valid=Validator(
            expected=f"a list of {', '.join(MECHANISMS)}, at least one and none of them twice",
            accepts=lambda value: bool(value) and set(value) <= set(MECHANISMS) and len(set(value)) == len(value),
        ),
        doc="The mechanisms by which clients may log in. PLAIN checks passwords against the users of SCRAM.",
    )
    connections_max_reauth_ms: int = long(
        0, at_least=0, doc="A client must log in again after this time, on the same connection (KIP-368). 0: never."
    )
    sasl_server_max_receive_size: int = integer(
        65_536,  # Kafka's is 524288
        at_least=1_024,
        doc="The largest request that a server accepts from a client that has not logged in yet.",
    )
    connection_failed_authentication_delay_ms: int = integer(
        100,
        at_least=0,
        doc="How long the server delays the response to a failed login. The delay doubles with each"
        " further failure of the same user from the same address, up to 10 s.",
    )
    authentication_timeout_ms: int = integer(
        10_000,
        at_least=1,
        doc="The longest time from the start of a client's connection to the end of its login,"
        " including the TLS handshake. Klamm's own setting; Kafka has none.",
    )
    sasl_plain_allow_unencrypted: bool = boolean(
        False,
        doc="Whether PLAIN is allowed without TLS where other machines can connect. PLAIN sends"
        " passwords in plain text. Klamm's own setting; Kafka has none.",
    )
    sasl_oauthbearer_allow_unencrypted: bool = boolean(
        False,
        doc="Whether OAUTHBEARER is allowed without TLS where other machines can connect. A token that"
        " is read on the network can be used by its reader. Klamm's own setting; Kafka has none.",
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = text(
        None,
        valid=Validator("a URL that begins with https:// or file:///", _is_jwks_url),
        doc="The https:// or file:// URL of the keys (JWKS) with which OAUTHBEARER tokens are signed.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = long(
        3_600_000,
        at_least=1_000,
        doc="How often the server reads the keys at sasl.oauthbearer.jwks.endpoint.url again.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = long(
        100,
        at_least=1,
        doc="How long the server waits before it tries again to read the keys after a failure. The wait"
        " doubles with each further failure.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = long(
        10_000, at_least=1, doc="The longest wait before the server tries again to read the keys."
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = text_list(
        (), doc="The accepted audiences. The aud claim of a token must name one of them."
    )
    sasl_oauthbearer_expected_issuer: str | None = text(
        None, doc="The accepted issuer. The iss claim of a token must name it."
    )
    sasl_oauthbearer_allow_unverified_audience: bool = boolean(
        False, doc="Whether tokens for any audience are accepted if sasl.oauthbearer.expected.audience is not set."
    )
    sasl_oauthbearer_allow_unverified_issuer: bool = boolean(
        False, doc="Whether tokens of any issuer are accepted if sasl.oauthbearer.expected.issuer is not set."
    )
    sasl_oauthbearer_clock_skew_seconds: int = integer(
        30,
        at_least=0,
        doc="The largest accepted difference between the clocks of this server and of the token's issuer.",
    )
    sasl_oauthbearer_scope_claim_name: str = text(
        "scope", valid=Validator("a name", bool), doc="The claim that contains the scopes of a token."
    )
    sasl_oauthbearer_sub_claim_name: str = text(
        "sub", valid=Validator("a name", bool), doc="The claim that contains the name of the user."
    )

    max_reauth_ms_by_mechanism: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """The values of mechanisms that have their own."""

    @classmethod
    def parse(
        cls, given: Mapping[str, Any], prefix: str = "", max_reauth_ms_by_mechanism: Mapping[str, int] | None = None
    ) -> Self:
        """Returns the settings in `given`, whose names lack `prefix` (`listener.name.internal.`). Errors add the prefix
        to names. Raises ConfigError."""
        try:
            settings = cls(**parse(cls, given), max_reauth_ms_by_mechanism=max_reauth_ms_by_mechanism or {})
            settings._check_oauthbearer()
        except ConfigError as error:
            raise ConfigError(f"{prefix}{error}") from None
        return settings

    def max_reauth_ms(self, mechanism: str) -> int:
        """Returns `connections.max.reauth.ms` of clients that log in by that mechanism."""
        return self.max_reauth_ms_by_mechanism.get(mechanism, self.connections_max_reauth_ms)

    def check_listener(self, listener: Listener) -> None:
        """Raises ConfigError for settings that the listener must not have."""
        if listener.security.is_encrypted or listener.is_local:
            return
        for mechanism, sent, is_allowed in (
            (PLAIN, "passwords", self.sasl_plain_allow_unencrypted),
            (OAUTHBEARER, "tokens", self.sasl_oauthbearer_allow_unencrypted),
        ):
            if mechanism in self.sasl_enabled_mechanisms and not is_allowed:
                raise ConfigError(
                    f"sasl.enabled.mechanisms: {mechanism} sends {sent} unencrypted, but {listener.name} is"
                    f" {listener.protocol_name} at {listener.host}:{listener.port}: expected TLS, a loopback address,"
                    f" or sasl.{mechanism.lower()}.allow.unencrypted=true"
                )

    def _check_oauthbearer(self) -> None:
        if OAUTHBEARER not in self.sasl_enabled_mechanisms:
            return
        if self.sasl_oauthbearer_jwks_endpoint_url is None:
            raise ConfigError(
                f"{_OAUTH}jwks.endpoint.url is not set: OAUTHBEARER needs the keys of the server that issues the tokens"
            )
        for what, expected, is_allowed in (
            ("audience", self.sasl_oauthbearer_expected_audience, self.sasl_oauthbearer_allow_unverified_audience),
            ("issuer", self.sasl_oauthbearer_expected_issuer, self.sasl_oauthbearer_allow_unverified_issuer),
        ):
            if not expected and not is_allowed:
                raise ConfigError(
                    f"{_OAUTH}expected.{what} is not set: expected one, or {_OAUTH}allow.unverified.{what}=true"
                )
