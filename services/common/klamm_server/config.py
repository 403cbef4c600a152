"""The configuration of a service process: a frozen dataclass whose fields carry Kafka's dotted names.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class BrokerConfig(ServiceConfig):
        fetch_max_bytes: int = setting(BROKER_CONFIGS["fetch.max.bytes"])

`load` makes one from text, as properties files have it. Unknown names are refused, values are parsed by their
ConfigDef, rules over several fields are `validate`'s. All of it raises ConfigError with one line that says which
name, which value, what was expected.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from klamm.errors import ConfigError
from klamm_server.broker_configs import BROKER_CONFIGS
from klamm_server.config_def import ConfigDef, Required, render
from klamm_server.listeners import PORT_MAX, ListenerSet, SecurityProtocol, listener_set

log = logging.getLogger(__name__)

HIDDEN = "[hidden]"
"""Shown instead of a sensitive value."""


def setting(definition: ConfigDef) -> Any:
    """A dataclass field for a config; the field is required when the config is."""
    metadata = {"config": definition}
    if isinstance(definition.default, Required):
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=definition.default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """What every service understands.

    A subclass adds fields and, in `ALSO_KNOWN`, names that are legal without having one: they are kept as text
    in `originals`, like everything that was set explicitly."""

    ALSO_KNOWN: ClassVar[Mapping[str, ConfigDef]] = {}

    node_id: int = setting(BROKER_CONFIGS["node.id"])
    listeners: tuple[str, ...] = setting(BROKER_CONFIGS["listeners"])
    advertised_listeners: tuple[str, ...] | None = setting(BROKER_CONFIGS["advertised.listeners"])
    listener_security_protocol_map: tuple[str, ...] = setting(BROKER_CONFIGS["listener.security.protocol.map"])
    socket_request_max_bytes: int = setting(BROKER_CONFIGS["socket.request.max.bytes"])
    max_concurrent_rpcs: int = setting(BROKER_CONFIGS["max.concurrent.rpcs"])
    shutdown_grace_ms: int = setting(BROKER_CONFIGS["shutdown.grace.ms"])
    metrics_host: str | None = setting(BROKER_CONFIGS["metrics.host"])
    metrics_port: int = setting(BROKER_CONFIGS["metrics.port"])
    log_level: str = setting(BROKER_CONFIGS["log.level"])
    log_format: str = setting(BROKER_CONFIGS["log.format"])
    tracing_enable: bool = setting(BROKER_CONFIGS["tracing.enable"])
    originals: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Everything that was set, as text, by dotted name."""
    origins: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Where each of these was set, if that is known: "file", "environment" or "command line"."""

    def validate(self) -> None:
        """Raises ConfigError when fields contradict each other; overriding methods call this one."""
        self.resolved_listeners()

    def resolved_listeners(self) -> ListenerSet:
        """Where the server listens, and what others dial. Raises ConfigError where nobody could listen or dial."""
        return listener_set(self.listeners, self.advertised_listeners, self.listener_security_protocol_map)

    def resolved_metrics_host(self) -> str:
        """Where metrics are shown; empty: at every interface."""
        if self.metrics_host is not None:
            return self.metrics_host
        return self.resolved_listeners().of(SecurityProtocol.GRPC)[0].host


C = TypeVar("C", bound=ServiceConfig)


def known_configs(config_class: type[ServiceConfig]) -> dict[str, ConfigDef]:
    """Every config a service understands, by dotted name."""
    definitions: dict[str, ConfigDef] = dict(config_class.ALSO_KNOWN)
    for field in dataclasses.fields(config_class):
        if (definition := field.metadata.get("config")) is not None:
            definitions[definition.name] = definition
    return definitions


def load(config_class: type[C], properties: Mapping[str, str], origins: Mapping[str, str] | None = None) -> C:
    """A validated config from text by dotted name. Raises ConfigError."""
    definitions = known_configs(config_class)
    for name in properties:
        if name not in definitions:
            raise ConfigError(_unknown(name, definitions))
    values: dict[str, Any] = {"originals": dict(properties), "origins": dict(origins or {})}
    for field in dataclasses.fields(config_class):
        definition = field.metadata.get("config")
        if definition is None:
            continue
        if definition.name in properties:
            values[field.name] = definition.parse(properties[definition.name])
        elif isinstance(definition.default, Required):
            raise ConfigError(f"{definition.name} is not set: {definition.documentation}")
    for name in properties.keys() & config_class.ALSO_KNOWN.keys():
        definitions[name].parse(properties[name])
    config = config_class(**values)
    config.validate()
    return config


def load_layers(config_class: type[C], layers: Mapping[str, Mapping[str, str]]) -> C:
    """As `load`, from what was set in several places, by place; the last one wins."""
    properties = {name: text for layer in layers.values() for name, text in layer.items()}
    origins = {name: place for place, layer in layers.items() for name in layer}
    return load(config_class, properties, origins)


def read_properties(path: Path) -> dict[str, str]:
    """The names and values of a properties file: `name=value` lines, `#` or `!` comments.

    Raises ConfigError when it cannot be read, has another kind of line, or sets a name twice."""
    return parse_properties(read_lines(path), str(path))


def read_lines(path: Path) -> list[str]:
    """The lines of a properties file. Raises ConfigError when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration {path}: {error}") from error


def parse_properties(lines: Iterable[str], origin: str) -> dict[str, str]:
    """As `read_properties`, from lines; `origin` names them in errors ("broker.properties", "--set")."""
    properties, problems = split_lines(lines, origin)
    if problems:
        raise ConfigError("; ".join(problems))
    return properties


def split_lines(lines: Iterable[str], origin: str) -> tuple[dict[str, str], list[str]]:
    """The names and values, and what is wrong with the other lines."""
    properties: dict[str, str] = {}
    problems: list[str] = []
    for number, line in enumerate(lines, start=1):
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        name, separator, value = line.partition("=")
        name = name.strip()
        if not separator or not name:
            problems.append(f"{origin}, line {number}: {line!r} is not of the form name=value")
        elif name in properties:
            problems.append(f"{origin}, line {number}: {name} is set twice")
        else:
            properties[name] = value.strip()
    return properties, problems


_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:/\[\]]+):([0-9]{1,5})")


def parse_server(name: str, text: str) -> tuple[str, int]:
    """`host:port` of the config `name`. Raises ConfigError."""
    match = _SERVER.fullmatch(text)
    if match is None or not 0 < int(match[2]) <= PORT_MAX:
        raise ConfigError(f"{name}: {text!r} is not valid, expected host:port")
    return match[1], int(match[2])


def effective(config: ServiceConfig) -> dict[str, str]:
    """Every name with the text of the value in force, sensitive ones hidden, sorted."""
    texts: dict[str, str] = {}
    for name, also in config.ALSO_KNOWN.items():
        texts[name] = config.originals.get(name, also.default_text())
    for field in dataclasses.fields(config):
        if (definition := field.metadata.get("config")) is not None:
            texts[definition.name] = render(getattr(config, field.name))
    definitions = known_configs(type(config))
    return {name: HIDDEN if definitions[name].sensitive else texts[name] for name in sorted(texts)}


def describe(config: ServiceConfig) -> list[str]:
    """`name=value` of every config, and after it where it was set, if it was."""
    places = {name: f" ({config.origins.get(name, 'set')})" for name in config.originals}
    return [f"{name}={text}{places.get(name, '')}" for name, text in effective(config).items()]


def log_effective(config: ServiceConfig) -> None:
    """Logs every config, secrets hidden."""
    for line in describe(config):
        log.info("config %s", line)


def _unknown(name: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1)
    return f"unknown configuration {name}" + (f"; did you mean {nearest[0]}?" if nearest else "")
