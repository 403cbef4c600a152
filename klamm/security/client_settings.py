"""The security settings of clients, under Kafka's names: `security.protocol`, `ssl.*`, and `sasl.*` for logins.

Name and password are set by `sasl.jaas.config`, as in Kafka, or by `sasl.username` with `sasl.password` or a file, as
in librdkafka. This module reads no files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from klamm.errors import ConfigError
from klamm.secret import Secret
from klamm.security.tls_settings import TlsSettings
from klamm.setting import custom, integer, one_of, secret, text

SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (*SCRAM, PLAIN, OAUTHBEARER)

_JAAS: Final = "sasl.jaas.config"
_EXTENSION: Final = "extension_"
_HANDLER: Final = "OAuthBearerLoginCallbackHandler"
_HANDLERS: Final = tuple(
    f"org.apache.kafka.common.security.oauthbearer.{package}{_HANDLER}" for package in ("", "secured.")
)

TokenCallback = Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordLogin:
    """The login of a SCRAM or PLAIN user, with either a password or a password file."""

    name: str
    password: Secret | None = None
    password_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogin:
    """The login of an OAUTHBEARER user. `callback` returns tokens, or the server at `url` gives them out for the
    client's credentials."""

    callback: TokenCallback | None = None
    url: str = ""
    client_id: str = ""
    client_secret: Secret | None = None
    scope: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)


def parse_callback(value: Any) -> TokenCallback:
    """Returns a callable value. Raises ValueError for other values."""
    if callable(value):
        called: TokenCallback = value
        return called
    raise ValueError("a function without arguments that returns a token")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity(TlsSettings):
    """The settings of a client's connections and logins."""

    security_protocol: str = text(
        "PLAINTEXT",
        valid=one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        doc="Whether connections are encrypted (SSL, SASL_SSL) and whether the client logs in"
        " (SASL_PLAINTEXT, SASL_SSL). With encryption, the client presents the certificate in"
        " ssl.keystore.*, if there is one. The settings sasl.* define the login.",
    )
    sasl_mechanism: str | None = text(
        None,
        valid=one_of(*MECHANISMS),
        doc="The mechanism by which the client logs in if security.protocol is SASL_PLAINTEXT or SASL_SSL.",
    )
    sasl_jaas_config: Secret | None = secret(
        None,
        doc="The login module of the mechanism with its options, as in Kafka's clients:"
        ' org.apache.kafka.common.security.scram.ScramLoginModule required username="a"'
        ' password="b"; The client reads the options and loads no class.',
    )
    sasl_username: str | None = text(
        None,
        doc="The user of SCRAM or PLAIN. Set it together with sasl.password or sasl.password.file,"
        " instead of sasl.jaas.config.",
    )
    sasl_password: Secret | None = secret(None, doc="The user's password.")
    sasl_password_file: str | None = text(
        None,
        doc="A file whose first line is the user's password. The client reads it for each login. Only"
        " the file's owner and group may have the right to read it. Klamm's own setting; Kafka has"
        " none.",
    )
    sasl_oauthbearer_token_endpoint_url: str | None = text(
        None,
        doc="The URL where the client gets an OAUTHBEARER token for its client credentials (RFC 6749,"
        " 4.4). The environment variable KLAMM_OAUTHBEARER_ALLOWED_URLS must contain it. Separate"
        " its URLs by commas.",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = text(
        None,
        doc="The client's id at sasl.oauthbearer.token.endpoint.url. It is the same as clientId in sasl.jaas.config.",
    )
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = secret(
        None,
        doc="The client's secret at sasl.oauthbearer.token.endpoint.url. It is the same as clientSecret"
        " in sasl.jaas.config.",
    )
    sasl_oauthbearer_scope: str | None = text(
        None, doc="The scope that the client requests for its token. It is the same as scope in sasl.jaas.config."
    )
    sasl_oauthbearer_token_callback: TokenCallback | None = custom(
        None,
        parse_callback,
        accepts="TokenCallback",
        doc="A function without arguments that returns an OAUTHBEARER token, instead of a URL. The"
        " client calls it in its own thread for each login. It can only be set in code. Klamm's own"
        " setting; Kafka has none.",
    )
    sasl_login_callback_handler_class: str | None = text(
        None,
        valid=one_of(*_HANDLERS),
        doc="Accepted because configurations of Kafka contain it; it has no effect. Only Kafka's own"
        " handlers for OAUTHBEARER are possible.",
    )
    sasl_login_connect_timeout_ms: int = integer(
        10_000,
        at_least=1,
        doc="How long it may take to connect to the server that issues tokens, and to receive each part"
        " of its response.",
    )

    @property
    def is_encrypted(self) -> bool:
        """True if connections use TLS."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def logs_in(self) -> bool:
        """True if connections begin with a login."""
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def login(self) -> PasswordLogin | TokenLogin:
        """Returns the login that the settings describe. Raises ConfigError if settings are missing or contradict each
        other. Its texts show no secret."""
        mechanism = self.sasl_mechanism
        if mechanism is None:
            raise ConfigError(f"sasl.mechanism is not set, expected one of {', '.join(MECHANISMS)}")
        options = {} if self.sasl_jaas_config is None else _options(mechanism, self.sasl_jaas_config)
        return self._token_login(options) if mechanism == OAUTHBEARER else self._password_login(options)

    def _password_login(self, options: Mapping[str, Secret]) -> PasswordLogin:
        known = ("username", "password", "tokenauth")
        _check_known(options, known)
        if options.get("tokenauth", Secret("false")).reveal().lower() != "false":
            raise ConfigError(f"{_JAAS}: tokenauth asks for a login by delegation token; there are none")
        own = (self.sasl_username, self.sasl_password, self.sasl_password_file)
        if options and any(setting is not None for setting in own):
            raise ConfigError(f"{_JAAS} and sasl.username, sasl.password or sasl.password.file are both set")
        name = options["username"].reveal() if "username" in options else self.sasl_username
        password = options.get("password", self.sasl_password)
        if not name:
            raise ConfigError(f"sasl.username is not set, nor username in {_JAAS}: {self.sasl_mechanism} needs a user")
        if (password is None) == (self.sasl_password_file is None):
            given = "none" if password is None else "two"
            raise ConfigError(f"sasl.password, sasl.password.file and password in {_JAAS}: {given} set, expected one")
        return PasswordLogin(name=name, password=password, password_file=self.sasl_password_file)

    def _token_login(self, options: Mapping[str, Secret]) -> TokenLogin:
        extensions = {
            name.removeprefix(_EXTENSION): value.reveal()
            for name, value in options.items()
            if name.startswith(_EXTENSION)
        }
        rest = {name: value for name, value in options.items() if not name.startswith(_EXTENSION)}
        _check_known(rest, ("clientId", "clientSecret", "scope"))
        url, callback = self.sasl_oauthbearer_token_endpoint_url, self.sasl_oauthbearer_token_callback
        if (url is None) == (callback is None):
            raise ConfigError(
                "sasl.oauthbearer.token.endpoint.url and sasl.oauthbearer.token.callback:"
                f" {'none is' if url is None else 'both are'} set, expected one of them"
            )
        if url is None:
            return TokenLogin(callback=callback, extensions=extensions)
        client_id = (
            rest["clientId"].reveal() if "clientId" in rest else self.sasl_oauthbearer_client_credentials_client_id
        )
        client_secret = rest.get("clientSecret", self.sasl_oauthbearer_client_credentials_client_secret)
        if not client_id or client_secret is None:
            raise ConfigError(
                "sasl.oauthbearer.client.credentials.client.id and .secret are not both set, nor clientId and"
                f" clientSecret in {_JAAS}: the server that gives out tokens asks for them"
            )
        scope = rest["scope"].reveal() if "scope" in rest else self.sasl_oauthbearer_scope or ""
        return TokenLogin(url=url, client_id=client_id, client_secret=client_secret, scope=scope, extensions=extensions)


def _options(mechanism: str, jaas: Secret) -> Mapping[str, Secret]:
    # The pattern takes time to compile, and few clients need it.
    from klamm.security.sasl.jaas import LoginModule, parse_jaas

    login = parse_jaas(jaas)
    expected = {PLAIN: LoginModule.PLAIN, OAUTHBEARER: LoginModule.OAUTHBEARER}.get(mechanism, LoginModule.SCRAM)
    if login.module is not expected:
        raise ConfigError(f"{_JAAS} names {login.module.value}, expected {expected.value} with {mechanism}")
    return login.options


def _check_known(options: Mapping[str, Secret], known: tuple[str, ...]) -> None:
    """Raises ConfigError for an unknown option. Does not show its name, because it may be a secret with a missing
    quote."""
    if not options.keys() <= set(known):
        raise ConfigError(f"{_JAAS} has an option that its login module does not know; expected {', '.join(known)}")
