"""What a client says of security, by Kafka's names: `security.protocol`, `ssl.*`, and `sasl.*` of its logins.

Name and password stand in `sasl.jaas.config`, as in Kafka, or in `sasl.username` with `sasl.password`, as in
librdkafka, or with a file. Nothing is read here but the settings themselves.
"""

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
_HANDLERS: Final = tuple(f"org.apache.kafka.common.security.oauthbearer.{each}{_HANDLER}" for each in ("", "secured."))

TokenCallback = Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordLogin:
    """A user of SCRAM or PLAIN. Either the password is set, or the file that holds it."""

    name: str
    password: Secret | None = None
    password_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogin:
    """A user of OAUTHBEARER: `callback` gives tokens, or the server at `url` does, for a client's credentials."""

    callback: TokenCallback | None = None
    url: str = ""
    client_id: str = ""
    client_secret: Secret | None = None
    scope: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)


def parse_callback(value: Any) -> TokenCallback:
    """Something that can be called. Raises ValueError."""
    if callable(value):
        called: TokenCallback = value
        return called
    raise ValueError("a function without arguments that returns a token")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity(TlsSettings):
    """What a client says of its connections and logins."""

    security_protocol: str = text(
        "PLAINTEXT",
        valid=one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        doc="Whether connections are encrypted (SSL, SASL_SSL), with what ssl.keystore.* shows of a client, and whether"
        " the client logs in (SASL_PLAINTEXT, SASL_SSL), as sasl.* says.",
    )
    sasl_mechanism: str | None = text(
        None,
        valid=one_of(*MECHANISMS),
        doc="How a client logs in, where security.protocol is SASL_PLAINTEXT or SASL_SSL.",
    )
    sasl_jaas_config: Secret | None = secret(
        None,
        doc="The mechanism's login module with its options, as Kafka's clients have it:"
        ' org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b"; It is read, and'
        " no class is loaded.",
    )
    sasl_username: str | None = text(
        None, doc="The user of SCRAM or PLAIN; with sasl.password or sasl.password.file, instead of sasl.jaas.config."
    )
    sasl_password: Secret | None = secret(None, doc="The user's password.")
    sasl_password_file: str | None = text(
        None,
        doc="A file whose first line is the user's password, read again for each login. Others than its owner and group"
        " may not read it. Ours.",
    )
    sasl_oauthbearer_token_endpoint_url: str | None = text(
        None,
        doc="Where a client of OAUTHBEARER gets its tokens for its client credentials (RFC 6749, 4.4). The"
        " environment's KLAMM_OAUTHBEARER_ALLOWED_URLS has to name it, with commas between URLs.",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = text(
        None, doc="The client's id there; clientId of sasl.jaas.config is the same."
    )
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = secret(
        None, doc="The client's secret there; clientSecret of sasl.jaas.config is the same."
    )
    sasl_oauthbearer_scope: str | None = text(
        None, doc="What a token is asked for; scope of sasl.jaas.config is the same."
    )
    sasl_oauthbearer_token_callback: TokenCallback | None = custom(
        None,
        parse_callback,
        doc="A function without arguments that returns a token of OAUTHBEARER, called in a thread of its own for each"
        " login; instead of a URL. Only in code. Ours.",
    )
    sasl_login_callback_handler_class: str | None = text(
        None,
        valid=one_of(*_HANDLERS),
        doc="Kafka's own for OAUTHBEARER is taken for a configuration of Kafka's; without effect.",
    )
    sasl_login_connect_timeout_ms: int = integer(
        10_000,
        at_least=1,
        doc="How long it may take to reach the server that gives out tokens, and each part of the answer.",
    )

    @property
    def is_encrypted(self) -> bool:
        """Whether connections are."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def logs_in(self) -> bool:
        """Whether connections begin with a login."""
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def login(self) -> PasswordLogin | TokenLogin:
        """The login that the settings ask for. Raises ConfigError where they leave that open, or contradict each other;
        its texts show no secret."""
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
        if options and any(each is not None for each in own):
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
    # Its pattern takes a while to compile, and few clients have such a text.
    from klamm.security.sasl.jaas import LoginModule, parse_jaas

    login = parse_jaas(jaas)
    expected = {PLAIN: LoginModule.PLAIN, OAUTHBEARER: LoginModule.OAUTHBEARER}.get(mechanism, LoginModule.SCRAM)
    if login.module is not expected:
        raise ConfigError(f"{_JAAS} names {login.module.value}, expected {expected.value} with {mechanism}")
    return login.options


def _check_known(options: Mapping[str, Secret], known: tuple[str, ...]) -> None:
    """What a name is that is not known may be a secret whose quote is missing."""
    if not options.keys() <= set(known):
        raise ConfigError(f"{_JAAS} has an option that its login module does not know; expected {', '.join(known)}")
