"""The configuration of a service process: a frozen dataclass of settings (`klamm.setting`) with Kafka's dotted names.

`load` makes one from text, as properties files have it. Unknown names are refused, except for Kafka's own, which have
no effect (`configs_without_effect`). Values are parsed by their definition, rules over several fields are `validate`'s.
The listeners of a configuration for Kafka are understood as `kafka_listeners` says.
All of these raise ConfigError with one line that has the name, the value, and the expected values.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar

from klamm.acls import ANONYMOUS
from klamm.errors import ConfigError
from klamm.kafka_names.without_effect import by_reason
from klamm.secret import HIDDEN, Secret
from klamm.security.tls_settings import ListenerTlsSettings
from klamm.setting import (
    REQUIRED,
    Setting,
    Validator,
    boolean,
    definitions,
    integer,
    list_matching,
    list_of,
    one_of,
    parse,
    render,
    text,
    text_list,
    unknown,
)
from klamm_server.config.audit_settings import AuditSettings
from klamm_server.config.configs_without_effect import accepted_without_effect, reason_of
from klamm_server.config.kafka_listeners import ListenerTexts, Role, of_role
from klamm_server.config.listener_settings import (
    check_listener,
    listener_names,
    listener_prefix,
    listener_settings,
    mechanism_prefix,
    own_values,
)
from klamm_server.config.sasl_settings import (
    MAX_REAUTH_MS,
    MECHANISMS,
    OAUTHBEARER,
    ListenerSaslSettings,
    mechanisms_of,
)
from klamm_server.net.listener_pairs import kafka_beside
from klamm_server.net.listeners import PORT_MAX, Listener, ListenerSet, SecurityProtocol, listener_set

log = logging.getLogger(__name__)


TLS_SETTINGS: Final[Mapping[str, Setting]] = {
    name: setting._replace(per_listener=True) for name, setting in definitions(ListenerTlsSettings).items()
}
"""The settings of a listener with TLS, by name."""
SASL_SETTINGS: Final[Mapping[str, Setting]] = {
    name: setting._replace(per_listener=True, mechanisms=mechanisms_of(name))
    for name, setting in definitions(ListenerSaslSettings).items()
}
"""The settings of a listener where clients log in, by name."""


AUTHORIZERS: Final = ("org.apache.kafka.metadata.authorizer.StandardAuthorizer", "StandardAuthorizer")
"""The names of the only authorizer."""
_CLIENT_AUTH: Final = "ssl.client.auth"
MIGRATION: Final = "security.migration.enable"


def _principals(text: str) -> list[str]:
    return [principal.strip() for principal in text.split(";") if principal.strip()]


def _are_principals(text: str) -> bool:
    return all(re.fullmatch("[^:]+:.+", principal) for principal in _principals(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig(AuditSettings):
    """The settings that every service has.

    A subclass adds fields. `ALSO_KNOWN` has names that are accepted without a field. `originals` keeps their texts,
    like those of all settings that were set explicitly, including settings of single listeners."""

    ALSO_KNOWN: ClassVar[Mapping[str, Setting]] = {**TLS_SETTINGS, **SASL_SETTINGS}
    OF_BROKERS: ClassVar[Mapping[str, Setting]] = {}
    """The settings of brokers that a server of another kind accepts without effect, so that servers of all kinds can
    start with one file."""
    ROLE: ClassVar[Role] = Role.BROKER
    """The role of the server in a cluster."""

    node_id: int = integer(REQUIRED, at_least=0, doc="The id of this server, unique among the servers of its kind.")
    listeners: tuple[str, ...] = text_list(
        # Kafka listens on every interface. A Klamm server without authentication does so only if it is configured.
        ("GRPC://localhost:9094",),
        doc="The addresses where the server listens, as NAME://host:port. An empty host is every"
        " interface. GRPC is the gRPC API. KAFKA (or PLAINTEXT) is a broker's listener for Kafka"
        " clients. GRPC_SSL and SSL are the same with TLS. At GRPC_SASL_SSL and SASL_SSL clients"
        " log in with TLS, at GRPC_SASL_PLAINTEXT and SASL_PLAINTEXT without TLS. Other names need"
        " listener.security.protocol.map. A client of a listener gets the addresses that the other"
        " servers advertise under the listener's name.",
    )
    advertised_listeners: tuple[str, ...] | None = text_list(
        None,
        doc="The addresses that clients and other servers connect to, as NAME://host:port. A listener"
        " that is missing here is advertised with its own address.",
    )
    listener_security_protocol_map: tuple[str, ...] = text_list(
        (),
        doc="The protocols of listeners with other names, as NAME:PROTOCOL. The protocols are GRPC,"
        " KAFKA (PLAINTEXT is the same), SSL, SASL_SSL, SASL_PLAINTEXT, GRPC_SSL, GRPC_SASL_SSL and"
        " GRPC_SASL_PLAINTEXT.",
    )
    inter_broker_listener_name: str | None = text(
        None,
        doc="The gRPC listener on which servers connect to each other. The default is the first gRPC"
        " listener in listeners.",
    )
    process_roles: tuple[str, ...] | None = text_list(
        None,
        valid=list_of("broker", "controller"),
        doc="What a server of Kafka does. In Klamm, the program that you start decides this. If it is"
        " set, the server reads its configuration as one of Kafka's. A controller then listens at"
        " controller.listener.names, where servers use gRPC, and the other servers do not have"
        " these listeners. A broker or coordinator without another gRPC listener adds one at the"
        " host of its first listener, unless a listener is secured.",
    )
    controller_listener_names: tuple[str, ...] | None = text_list(
        None, doc="The names of the controllers' listeners. They apply only if process.roles is set."
    )
    node_principals: tuple[str, ...] = text_list(
        (),
        valid=list_matching(
            "(broker|controller|coordinator):[0-9]{1,9}=User:.+",
            "a list of KIND:ID=User:NAME, as broker:1=User:broker-1",
        ),
        doc="The principal of each server, as broker:1=User:broker-1,controller:1=User:controller-1. If"
        " it is set, a server accepts a call in the name of another server only from the principal"
        " of that server. For principals with commas, set ssl.principal.mapping.rules. Klamm's own"
        " setting; Kafka has none.",
    )
    authorizer_class_name: str = text(
        "",
        valid=one_of("", *AUTHORIZERS),
        doc="The authorizer, which must be the same at every server of the cluster."
        " org.apache.kafka.metadata.authorizer.StandardAuthorizer, or StandardAuthorizer for short,"
        " checks access control lists. Empty: all callers may do everything.",
    )
    super_users: str = text(
        "",
        valid=Validator("TYPE:NAME with semicolons between them, as User:admin;User:CN=broker,O=shop", _are_principals),
        doc="Principals that may do everything, separated by semicolons. The principals of the"
        " controllers must be among them.",
    )
    allow_everyone_if_no_acl_found: bool = boolean(
        False, doc="Whether all users may do everything with a resource that has no access control list."
    )
    security_migration_enable: bool = boolean(
        False,
        doc="Whether this cluster is being migrated from plain text to security. The gRPC listener"
        " between servers may then stay open to all clients, in addition to secured ones, and"
        " User:ANONYMOUS may be a super user. Access is not restricted until this is false again."
        " Klamm's own setting; Kafka has none.",
    )
    socket_request_max_bytes: int = integer(
        100 * 1024 * 1024, at_least=1, doc="The largest request that a server accepts."
    )
    max_concurrent_rpcs: int = integer(
        20_000,
        at_least=1,
        doc="The most gRPC calls of clients that a server processes at the same time. One user may take two thirds of"
        " these places, and less while others use them. The server rejects further calls with RESOURCE_EXHAUSTED."
        " Calls of servers do not count. A gRPC listener itself processes or queues at most twice as many calls."
        " Klamm's own setting; Kafka has none.",
    )
    quota_window_num: int = integer(
        11, at_least=2, doc="The number of windows over which a server measures the rates of clients with quotas."
    )
    quota_window_size_seconds: int = integer(
        1, at_least=1, doc="The length of each window over which a server measures the rates of clients with quotas."
    )
    shutdown_grace_ms: int = integer(
        5_000, at_least=0, doc="How long calls in progress may continue after the process was asked to stop."
    )
    metrics_host: str | None = text(
        None,
        doc="The address where the Prometheus endpoint listens. Empty: every interface. The default is"
        " the host of the gRPC listener between servers, or localhost if any listener is secured.",
    )
    metrics_port: int = integer(
        0, at_least=0, at_most=65_535, doc="The port of the Prometheus endpoint /metrics. 0: no endpoint."
    )
    log_level: str = text(
        "INFO",
        valid=one_of("DEBUG", "INFO", "WARNING", "ERROR"),
        doc="The lowest level of the messages that are logged.",
    )
    log_format: str = text(
        "auto",
        valid=one_of("auto", "text", "json"),
        doc="The format of log messages: text, or json (one object per line). auto is text on a"
        " terminal and json otherwise.",
    )
    tracing_enable: bool = boolean(
        False,
        doc="Whether the server exports its calls as OpenTelemetry spans. Set the target with"
        " OTEL_EXPORTER_OTLP_ENDPOINT and similar environment variables.",
    )
    originals: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """All settings as text, by dotted name. Sensitive ones are a `Secret`."""
    origins: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The source of each of these settings, if it is known: "file", "environment" or "command line"."""

    def validate(self) -> None:
        """Raises ConfigError if fields contradict each other. Overriding methods call this method."""
        listeners = self.resolved_listeners()
        for listener in listeners.secured:
            self._check_secured(listener)
        if listeners.secured or self.authorizer_class_name:
            self._check_between_servers(listeners.between_servers)
        self._check_super_users(listeners)
        self._check_migration(listeners)
        if self.node_principals and not self._is_mutual(listeners.between_servers):
            raise ConfigError(
                "node.principals: servers do not authenticate each other with certificates, expected the listener"
                " between them to be GRPC_SSL with ssl.client.auth=required"
            )

    def resolved_listeners(self) -> ListenerSet:
        """Returns where the server listens, and the addresses that others dial. Raises ConfigError for addresses at
        which no server can listen, or that no client can dial."""
        return listener_set(*self._listener_texts())

    def kafka_beside(self) -> dict[str, str]:
        """Returns the name of the Kafka listener beside each gRPC listener that has one. See `listener_pairs`."""

        def own_settings(name: str) -> dict[str, str]:
            prefix = listener_prefix(name)
            own = (key for key in self.originals if key.startswith(prefix))
            return {key.removeprefix(prefix): self.originals[key] for key in own}

        return kafka_beside(self.resolved_listeners(), own_settings)

    def kafka_between_servers(self) -> str:
        """Returns the name of the Kafka listener at which followers may fetch without gRPC, or "". It is beside the
        listener between servers. Where there is any security, servers authenticate each other, and only by gRPC."""
        listeners = self.resolved_listeners()
        if listeners.secured or self.authorizer_class_name:
            return ""
        return self.kafka_beside().get(listeners.between_servers.name, "")

    def servers_listener(self) -> str | None:
        """Returns the name of the only listener where callers may act as servers. Returns None if they may at every
        listener. That is so without any security, and during a security migration."""
        listeners = self.resolved_listeners()
        is_open = not (listeners.secured or self.authorizer_class_name)
        return None if is_open or self.security_migration_enable else listeners.between_servers.name

    def _listener_texts(self) -> ListenerTexts:
        """Returns the listener settings. For a configuration that was written for Kafka, returns those that this server
        derives from it."""
        given = ListenerTexts(
            self.listeners,
            self.advertised_listeners,
            self.listener_security_protocol_map,
            self.inter_broker_listener_name,
        )
        if self.process_roles is None:
            return given
        (default,) = definitions(type(self))["listeners"].default
        return of_role(self.ROLE, given, self.controller_listener_names or (), default)

    def at_listener(self, name: str) -> Mapping[str, Any]:
        """Returns the typed values that are set for that listener only, by field. Raises ConfigError for a wrong
        value."""
        return own_values(known_configs(type(self)), self.originals, name)

    def tls_settings(self, listener: str) -> ListenerTlsSettings:
        """Returns the TLS settings of that listener. Raises ConfigError if they contradict each other."""
        given, prefix = self._given_at(listener, TLS_SETTINGS)
        if self.passes_over_client_auth(listener):
            del given[_CLIENT_AUTH]
        return ListenerTlsSettings.parse(given, prefix)

    def passes_over_client_auth(self, listener: str) -> bool:
        """Returns whether `ssl.client.auth` is set but does not apply to that listener, because clients log in there
        (KIP-684). At such a listener only the setting with the listener's prefix applies."""
        wants_sasl = any(
            bound.name == listener and bound.security.wants_sasl for bound in self.resolved_listeners().bound
        )
        return wants_sasl and _CLIENT_AUTH in self.originals and self._client_auth_at(listener) not in self.originals

    def _client_auth_at(self, listener: str) -> str:
        return f"{listener_prefix(listener)}{_CLIENT_AUTH}"

    def sasl_settings(self, listener: str) -> ListenerSaslSettings:
        """Returns the login settings of that listener. Raises ConfigError if they contradict each other."""
        given, prefix = self._given_at(listener, SASL_SETTINGS)
        tokens = self._given_by_mechanism(listener, OAUTHBEARER)
        tokens.pop(MAX_REAUTH_MS, None)
        parse_ms = SASL_SETTINGS[MAX_REAUTH_MS].parse
        max_reauth_ms = {
            mechanism: parse_ms(own[MAX_REAUTH_MS])
            for mechanism in MECHANISMS
            if MAX_REAUTH_MS in (own := self._given_by_mechanism(listener, mechanism))
        }
        return ListenerSaslSettings.parse({**given, **tokens}, prefix, max_reauth_ms)

    def _given_by_mechanism(self, listener: str, mechanism: str) -> dict[str, str]:
        """Returns the settings of a listener that are for that mechanism only."""
        prefix = mechanism_prefix(listener, mechanism)
        return {
            name: self.originals[f"{prefix}{name}"] for name in SASL_SETTINGS if f"{prefix}{name}" in self.originals
        }

    def _given_at(self, listener: str, names: Iterable[str]) -> tuple[dict[str, str], str]:
        """Returns the values of `names` for a listener, and its prefix if it has own values. A value for all listeners
        applies if the listener has none."""
        prefix = listener_prefix(listener)
        given = {name: self.originals[name] for name in names if name in self.originals}
        own = {name: self.originals[f"{prefix}{name}"] for name in names if f"{prefix}{name}" in self.originals}
        return {**given, **own}, prefix if own else ""

    def _check_secured(self, listener: Listener) -> None:
        """Raises ConfigError for settings that a listener with TLS or logins does not support."""
        if listener.security.is_encrypted:
            tls = self.tls_settings(listener.name)
            if listener.protocol is SecurityProtocol.GRPC:
                tls.check_grpc_listener()
        if listener.security.wants_sasl:
            self.sasl_settings(listener.name).check_listener(listener)

    def _check_between_servers(self, listener: Listener) -> None:
        """Raises ConfigError if any client could act as a server at this listener, although clients have principals."""
        if listener.security.wants_sasl:
            raise ConfigError(
                f"inter.broker.listener.name: {listener.name} is {listener.protocol_name}, and servers do not log in to"
                " each other: expected GRPC_SSL with ssl.client.auth=required, or GRPC at a loopback address"
            )
        if not (self._is_mutual(listener) or listener.is_local or self.security_migration_enable):
            raise ConfigError(
                f"inter.broker.listener.name: {listener.name} is {listener.protocol_name} at"
                f" {listener.host}:{listener.port}, where any client could act as a server: with secured listeners or"
                " an authorizer, expected GRPC_SSL with ssl.client.auth=required, a loopback address or, while servers"
                f" change to GRPC_SSL one after the other, {MIGRATION}=true"
            )

    def super_user_names(self) -> list[str]:
        """The principals that `super.users` names."""
        return _principals(self.super_users)

    def _check_migration(self, listeners: ListenerSet) -> None:
        """Raises ConfigError if the migration setting is on but no listener is secured. It was then left on by
        mistake."""
        if self.security_migration_enable and not listeners.secured:
            raise ConfigError(
                f"{MIGRATION}: no listener is secured, expected one of SSL, SASL_SSL, GRPC_SSL or GRPC_SASL_SSL that"
                " servers and clients change to"
            )

    def _check_super_users(self, listeners: ListenerSet) -> None:
        """Raises ConfigError for invalid super users. Also raises it if servers, or any clients, would be anonymous."""
        if not self.authorizer_class_name:
            if self.super_users:
                raise ConfigError("super.users: has no effect without authorizer.class.name")
            return
        is_anonymous_super = ANONYMOUS in self.super_user_names()
        if not is_anonymous_super and not self._is_mutual(listeners.between_servers):
            raise ConfigError(
                f"super.users: other servers connect to {listeners.between_servers.name} without a certificate:"
                f" expected {ANONYMOUS} in the list, or that listener to be GRPC_SSL with ssl.client.auth=required"
            )
        if not is_anonymous_super or self.security_migration_enable:
            return
        for listener in listeners.bound:
            if not (listener.is_local or listener.security.wants_sasl or self._is_mutual(listener)):
                raise ConfigError(
                    f"super.users: {ANONYMOUS} is every client of the listener {listener.name},"
                    f" {listener.host}:{listener.port}: expected a loopback address there, a login or a certificate of"
                    f" every client there or, while clients change to other listeners, {MIGRATION}=true"
                )

    def _is_mutual(self, listener: Listener) -> bool:
        """Returns whether both ends of the listener's connections show certificates."""
        return listener.security.is_encrypted and self.tls_settings(listener.name).ssl_client_auth == "required"

    def resolved_metrics_host(self) -> str:
        """Returns the host where the metrics are served. Empty means every interface. The endpoint does not
        authenticate clients."""
        if self.metrics_host is not None:
            return self.metrics_host
        listeners = self.resolved_listeners()
        return "localhost" if listeners.secured else listeners.between_servers.host


C = TypeVar("C", bound=ServiceConfig)


def known_configs(config_class: type[ServiceConfig], properties: Mapping[str, str] | None = None) -> dict[str, Setting]:
    """Returns every setting of a service, by dotted name. This includes those of single listeners that `properties`
    names."""
    known = {**config_class.ALSO_KNOWN, **definitions(config_class)}
    if properties is not None:
        known |= listener_settings(known, listener_names(properties, known))
    return known


def accepted_configs(config_class: type[ServiceConfig], properties: Mapping[str, str]) -> dict[str, Setting]:
    """Returns the settings of `known_configs`, and those that the service accepts without effect. The latter are
    Kafka's, and at a controller or coordinator also those of brokers."""
    known = known_configs(config_class, properties)
    listeners = listener_names(properties, known)
    of_brokers = {
        name: setting._replace(read_by="brokers")
        for name, setting in config_class.OF_BROKERS.items()
        if name not in known
    }
    of_brokers |= listener_settings(of_brokers, listeners)
    return known | of_brokers | accepted_without_effect(known.keys() | of_brokers.keys(), listeners)


def load(config_class: type[C], properties: Mapping[str, str], origins: Mapping[str, str] | None = None) -> C:
    """Returns a validated configuration from text by dotted name. Raises ConfigError."""
    known = _definitions_of(config_class, properties)
    for name in properties:
        if name not in known:
            check_listener(name, listener_names(properties, known))
            raise ConfigError(unknown(name, known))
    also = properties.keys() - definitions(config_class).keys()
    values = parse(config_class, {name: text for name, text in properties.items() if name not in also})
    for name in also:
        known[name].parse(properties[name])
    originals = {name: Secret(text) if known[name].sensitive else text for name, text in properties.items()}
    config = config_class(**values, originals=originals, origins=dict(origins or {}))
    config.validate()
    return config


def _definitions_of(config_class: type[ServiceConfig], properties: Mapping[str, str]) -> dict[str, Setting]:
    """Returns definitions that include all `properties`. Those without effect are included only if a property needs
    them."""
    known = known_configs(config_class, properties)
    return known if properties.keys() <= known.keys() else accepted_configs(config_class, properties)


def load_layers(config_class: type[C], layers: Mapping[str, Mapping[str, str]]) -> C:
    """Loads a configuration from the settings of several places, by place. The last place that has a setting wins."""
    properties = {name: text for layer in layers.values() for name, text in layer.items()}
    origins = {name: place for place, layer in layers.items() for name in layer}
    return load(config_class, properties, origins)


_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:/\[\]]+):([0-9]{1,5})")


def parse_server(name: str, text: str) -> tuple[str, int]:
    """Returns host and port of the `host:port` in the config `name`. Raises ConfigError."""
    match = _SERVER.fullmatch(text)
    if match is None or not 0 < int(match[2]) <= PORT_MAX:
        raise ConfigError(f"{name}: {text!r} is not valid, expected host:port")
    return match[1], int(match[2])


def effective(config: ServiceConfig) -> dict[str, str]:
    """Returns the text of every effective setting by name, sorted. Secrets are hidden."""
    known = _definitions_of(type(config), config.originals)
    texts = {name: setting.default_text() for name, setting in config.ALSO_KNOWN.items()}
    texts |= config.originals
    for name, setting in definitions(type(config)).items():
        texts[name] = render(getattr(config, setting.field))
    return {name: HIDDEN if known[name].sensitive else texts[name] for name in sorted(texts)}


def describe(config: ServiceConfig) -> list[str]:
    """Returns `name=value` of every config. If it was set, the line also has the source, and says whether it has no
    effect."""
    idle = {setting.name for setting in _without_effect(config)}
    places = {
        name: f" ({config.origins.get(name, 'set')}{', without effect' if name in idle else ''})"
        for name in config.originals
    }
    return [f"{name}={text}{places.get(name, '')}" for name, text in effective(config).items()]


def log_effective(config: ServiceConfig) -> None:
    """Logs every config, secrets hidden. Then it logs the configs that were set and have no effect, with the reason. If
    the configuration was written for Kafka, it also logs the listeners that the server has."""
    for line in describe(config):
        log.info("config %s", line)
    for reason, names in reasons_without_effect(config).items():
        log.warning("these configs were set and have no effect here, because %s: %s", reason, ", ".join(names))
    if config.process_roles is not None:
        bound = config.resolved_listeners().bound
        shown = ", ".join(
            f"{listener.name} ({listener.protocol_name}) at {listener.host}:{listener.port}" for listener in bound
        )
        log.info("process.roles is set, as in a configuration for Kafka: the %s has %s", config.ROLE.value, shown)


def reasons_without_effect(config: ServiceConfig) -> dict[str, list[str]]:
    """Returns the names of the configs that were set and have no effect, by the reason."""
    settings = {setting.name: setting for setting in _without_effect(config)}
    return by_reason(settings, lambda name: reason_of(settings[name]))


def _without_effect(config: ServiceConfig) -> list[Setting]:
    """Returns the settings that were set and have no effect, sorted by name."""
    known = known_configs(type(config), config.originals)
    names = sorted(config.originals.keys() - known.keys())
    if not names:
        return []
    accepted = accepted_configs(type(config), config.originals)
    return [accepted[name] for name in names]
