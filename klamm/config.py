"""Client configuration: Kafka's dotted names, declared once, parsed and checked at the edge.

A configuration is a frozen dataclass whose fields are the dotted names with underscores
(`batch.size` is `batch_size`). `parse` takes what users give: a mapping with dotted names, keyword arguments
with underscores, values typed or as text (as in a properties file). Unknown names, wrong types and values out
of range are a ConfigError that names the setting, the value and what was expected. So is a setting of Kafka's that
promises what there is not here (encryption, say); one that only tunes what there is not is ignored, with a warning.

Clients declare theirs by subclassing ClientConfig, e.g. `batch_size: int = integer(16_384, at_least=0)`.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from klamm.errors import ConfigError

log = logging.getLogger(__name__)

DEFAULT_PORT: Final = 9094

Parser = Callable[[Any], Any]
"""A user's value to the field's; raises ValueError with what was expected."""


def _setting(default: Any, parse: Parser) -> Any:
    return dataclasses.field(default=default, metadata={"parse": parse})


def integer(default: int, *, at_least: int | None = None, at_most: int | None = None) -> Any:
    """A whole number; bounds are inclusive."""

    def parse(value: Any) -> int:
        number = _whole_number(value)
        if at_least is not None and number < at_least:
            raise ValueError(f"at least {at_least}")
        if at_most is not None and number > at_most:
            raise ValueError(f"at most {at_most}")
        return number

    return _setting(default, parse)


def optional_integer(default: int | None = None) -> Any:
    """A whole number or None."""
    return _setting(default, lambda value: None if value is None else _whole_number(value))


def text(default: str, *, one_of: Iterable[str] = ()) -> Any:
    """A string, of a closed set when `one_of` is given."""
    allowed = tuple(one_of)

    def parse(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError("a string")
        if allowed and value not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return value

    return _setting(default, parse)


def optional_text(default: str | None = None) -> Any:
    """A string or None."""

    def parse(value: Any) -> str | None:
        if value is not None and not isinstance(value, str):
            raise ValueError("a string or None")
        return value

    return _setting(default, parse)


def boolean(default: bool) -> Any:
    """True or False, or their names in any letter case."""

    def parse(value: Any) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        raise ValueError("true or false")

    return _setting(default, parse)


def custom(default: Any, parse: Parser) -> Any:
    """Anything `parse` accepts; it raises ValueError saying what it expected."""
    return _setting(default, parse)


def text_list(value: Any) -> tuple[str, ...]:
    """A list of strings, or one string separated by commas."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Iterable):
        raise ValueError("strings separated by commas, or a list of strings")
    items = tuple(parts)
    if not all(isinstance(item, str) and item.strip() for item in items):
        raise ValueError("strings separated by commas, or a list of strings")
    return tuple(item.strip() for item in items)


def parse_servers(value: Any) -> tuple[str, ...]:
    """`host:port` strings; a missing port is 9094. IPv6 addresses stand in brackets."""
    servers = text_list(value)
    if not servers:
        raise ValueError("at least one host:port")
    return tuple(_host_and_port(server) for server in servers)


def parse_acks(value: Any) -> int:
    """`all` or -1, 0, 1."""
    if value == "all":
        return -1
    if not isinstance(value, bool) and str(value) in ("-1", "0", "1"):
        return int(value)
    raise ValueError("all (or -1), 0 or 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """What every client understands."""

    WITHOUT_EFFECT: ClassVar[frozenset[str]] = frozenset(
        {
            "auto.include.jmx.reporter",
            "client.dns.lookup",
            "connections.max.idle.ms",
            "enable.metrics.push",
            "metadata.recovery.rebootstrap.trigger.ms",
            "metadata.recovery.strategy",
            "metric.reporters",
            "metrics.num.samples",
            "metrics.recording.level",
            "metrics.sample.window.ms",
            "receive.buffer.bytes",
            "send.buffer.bytes",
            "socket.connection.setup.timeout.max.ms",
        }
    )
    """Kafka's settings that are accepted and ignored, so that a configuration can be brought along."""

    bootstrap_servers: tuple[str, ...] = custom((f"localhost:{DEFAULT_PORT}",), parse_servers)
    """Brokers to ask first; one that answers is enough."""
    client_id: str = text("klamm")
    """Names this client in the servers' logs and quotas."""
    client_rack: str = text("")
    """Where this client runs, to be compared with broker.rack: consumers read from a replica there (KIP-392)."""
    request_timeout_ms: int = integer(30_000, at_least=1)
    """How long one call may take."""
    default_api_timeout_ms: int = integer(60_000, at_least=1)
    """How long an API call that takes no timeout of its own may take, retries included."""
    retry_backoff_ms: int = integer(100, at_least=0)
    """Pause before the first retry; it doubles with each further one (KIP-580)."""
    retry_backoff_max_ms: int = integer(1_000, at_least=0)
    """Bound of that pause."""
    reconnect_backoff_ms: int = integer(50, at_least=1)
    """Pause before the first attempt to reconnect; it grows with each further one."""
    reconnect_backoff_max_ms: int = integer(1_000, at_least=1)
    """Bound of that pause."""
    socket_connection_setup_timeout_ms: int = integer(10_000, at_least=1)
    """How long dialling a server may take."""
    metadata_max_age_ms: int = integer(300_000, at_least=1)
    """Metadata is refreshed after this time even without a reason."""
    receive_message_max_bytes: int = integer(100_000_000, at_least=1_000)
    """An answer larger than this is refused (librdkafka's receive.message.max.bytes)."""
    tracing_enable: bool = boolean(False)
    """Calls are OpenTelemetry's spans; see klamm/tracing.py."""
    security_protocol: str = text("PLAINTEXT", one_of=("PLAINTEXT",))
    """Connections are neither encrypted nor authenticated; asking for that is refused rather than ignored."""

    @classmethod
    def parse(cls, config: Mapping[str, Any] | None = None, /, **overrides: Any) -> Self:
        """The configuration a user means; see the module. Raises ConfigError."""
        given = {name: (name.replace(".", "_"), value) for name, value in (config or {}).items()}
        fields = {field.name: field for field in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for name, (field_name, value) in [*given.items(), *((n, (n, v)) for n, v in overrides.items())]:
            field = fields.get(field_name)
            if field is None:
                if dotted(field_name) not in cls.WITHOUT_EFFECT:
                    raise ConfigError(_unknown(name, fields))
                log.warning("config %s=%r has no effect", dotted(field_name), value)
                continue
            if field_name in values:
                raise ConfigError(f"{dotted(field_name)} is given twice")
            values[field_name] = _parse_value(field, value)
        parsed = cls(**values)
        parsed.validate()
        return parsed

    def validate(self) -> None:
        """Checks what concerns more than one setting; raises ConfigError."""
        if self.retry_backoff_max_ms < self.retry_backoff_ms:
            raise ConfigError(
                f"retry.backoff.max.ms={self.retry_backoff_max_ms} must be at least"
                f" retry.backoff.ms={self.retry_backoff_ms}"
            )

    def as_mapping(self) -> dict[str, Any]:
        """The effective configuration under its dotted names."""
        return {dotted(field.name): getattr(self, field.name) for field in dataclasses.fields(self)}


def dotted(field_name: str) -> str:
    """Kafka's name of a field."""
    return field_name.replace("_", ".")


def _parse_value(field: dataclasses.Field[Any], value: Any) -> Any:
    try:
        return field.metadata["parse"](value)
    except ValueError as error:
        raise ConfigError(f"{dotted(field.name)}={value!r} is not valid; expected {error}") from None


def _unknown(name: str, fields: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(dotted(name), [dotted(field) for field in fields], n=1, cutoff=0.5)
    return f"unknown configuration {name!r}" + (f"; did you mean {nearest[0]!r}?" if nearest else "")


def _whole_number(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            pass
    raise ValueError("a whole number")


def _host_and_port(server: str) -> str:
    host, colon, port = server.rpartition(":")
    if not colon or server.endswith("]"):
        host, port = server, str(DEFAULT_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError("host:port")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError("host:port, an IPv6 address in brackets")
    return f"{host}:{port}"
