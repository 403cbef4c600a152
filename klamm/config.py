"""Client configuration: Kafka's dotted names, parsed and checked at the edge.

A configuration is a frozen dataclass of settings (`klamm.setting`). `parse` takes what users give: a mapping with
dotted names, keyword arguments with underscores, values typed or as text (as in a properties file). Unknown names,
wrong types and values out of range raise a ConfigError, which names the setting, the value and the expected values. It
is also raised for a setting of Kafka's that asks for a feature that Klamm does not have (interceptors, say). A setting
that only tunes such a feature is ignored, with a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from klamm.errors import ConfigError
from klamm.kafka_names.without_effect import OF_CLIENTS
from klamm.secret import Secret
from klamm.security.client_settings import ClientSecurity
from klamm.setting import (
    ConfigType,
    boolean,
    custom,
    definitions,
    dotted,
    integer,
    long,
    parse,
    text,
    to_list,
)

log = logging.getLogger(__name__)

DEFAULT_PORT: Final = 9094


def parse_servers(value: Any) -> tuple[str, ...]:
    """Returns `host:port` texts. The default port is 9094. IPv6 addresses stand in brackets."""
    servers = to_list(value)
    if not servers:
        raise ValueError("at least one host:port")
    return tuple(_host_and_port(server) for server in servers)


def parse_acks(value: Any) -> int:
    """Returns -1 for `all` or -1, otherwise 0 or 1. Raises ValueError for other values."""
    if value == "all":
        return -1
    if not isinstance(value, bool) and str(value) in ("-1", "0", "1"):
        return int(value)
    raise ValueError("all (or -1), 0 or 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig(ClientSecurity):
    """The settings that all clients have."""

    WITHOUT_EFFECT: ClassVar[Mapping[str, str]] = OF_CLIENTS
    """Kafka's settings that a client accepts and ignores, so that configurations written for Kafka work. The values are
    the reasons why they have no effect, by name."""

    bootstrap_servers: tuple[str, ...] = custom(
        (f"localhost:{DEFAULT_PORT}",),
        parse_servers,
        type=ConfigType.LIST,
        accepts="str | Sequence[str]",
        doc="The brokers that the client contacts first, as host:port. One live broker is enough.",
    )
    client_id: str = text("klamm", doc="Names this client in the servers' logs and quotas.")
    client_rack: str = text(
        "",
        doc="The rack of this client, or a path of failure domains as dc1/host7. A consumer reads from a replica on a"
        " broker with the same broker.rack, or else with the most levels of the path in common (KIP-392).",
    )
    request_timeout_ms: int = integer(30_000, at_least=1, doc="How long one request may take.")
    default_api_timeout_ms: int = integer(
        60_000, at_least=1, doc="How long an API call without its own timeout may take, including retries."
    )
    retry_backoff_ms: int = long(
        100, at_least=0, doc="The wait before the first retry. It doubles with each further retry (KIP-580)."
    )
    retry_backoff_max_ms: int = long(1_000, at_least=0, doc="The longest wait before a retry.")
    reconnect_backoff_ms: int = long(
        50, at_least=1, doc="The wait before the first attempt to reconnect. It grows with each further attempt."
    )
    reconnect_backoff_max_ms: int = long(1_000, at_least=1, doc="The longest wait before an attempt to reconnect.")
    socket_connection_setup_timeout_ms: int = long(
        10_000, at_least=1, doc="How long an attempt to connect to a server may take."
    )
    metadata_max_age_ms: int = long(
        300_000, at_least=1, doc="The client refreshes its metadata after this time, even if no error requires it."
    )
    receive_message_max_bytes: int = integer(
        100_000_000,
        at_least=1_000,
        doc="The client rejects a response that is larger than this (librdkafka's receive.message.max.bytes).",
    )
    tracing_enable: bool = boolean(
        False, doc="Whether the client exports its calls as OpenTelemetry spans. See klamm/tracing.py."
    )

    @classmethod
    def parse(cls, config: Mapping[str, Any] | None = None, /, **overrides: Any) -> Self:
        """Returns the configuration for the given settings. The module's docstring explains the arguments. Raises
        ConfigError."""
        if config is not None and not isinstance(config, Mapping):
            raise ConfigError(
                f"{config!r} is not a mapping of settings; write bootstrap_servers={config!r}"
                if isinstance(config, str)
                else f"{config!r} is not a mapping of settings, such as {{'bootstrap.servers': 'localhost:9094'}}"
            )
        known = definitions(cls)
        given: dict[str, Any] = {}
        for name, value in [*(config or {}).items(), *overrides.items()]:
            # Names in the mapping are dotted and keywords have underscores, but both forms are accepted in both places.
            setting = dotted(name)
            if setting in given:
                raise ConfigError(f"{setting} is given twice")
            if setting not in known and setting in cls.WITHOUT_EFFECT:
                log.warning(
                    "config %s=%r has no effect in Klamm, because %s", setting, value, cls.WITHOUT_EFFECT[setting]
                )
                continue
            given[setting] = value
        parsed = cls(**parse(cls, given))
        parsed.validate()
        return parsed

    def validate(self) -> None:
        """Checks the relations between settings. Raises ConfigError."""
        self.check_tls()
        self.check_grpc()
        if self.logs_in:
            self.login()
        if self.retry_backoff_max_ms < self.retry_backoff_ms:
            raise ConfigError(
                f"retry.backoff.max.ms={self.retry_backoff_max_ms} must be at least"
                f" retry.backoff.ms={self.retry_backoff_ms}"
            )

    def named(self, client: str, *details: str) -> str:
        """Returns the text for the `repr` of a client with these settings."""
        servers = ",".join(self.bootstrap_servers)
        return f"<{' '.join([client, f'client.id={self.client_id}', f'bootstrap.servers={servers}', *details])}>"


def hide_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the given settings of a client, with a Secret as the value of each secret setting."""
    known = definitions(ClientConfig)
    return {name: Secret(text) if name in known and known[name].sensitive else text for name, text in settings.items()}


def _host_and_port(server: str) -> str:
    host, colon, port = server.rpartition(":")
    if not colon or server.endswith("]"):
        host, port = server, str(DEFAULT_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError("host:port")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError("host:port, an IPv6 address in brackets")
    return f"{host}:{port}"
