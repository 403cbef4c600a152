"""Builds the reference of all settings in Markdown, for `klamm configs docs` and docs/reference/settings.md.

The content of the page comes from the classes that declare the settings.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from klamm.config import ClientConfig
from klamm.consumer.config import ConsumerConfig
from klamm.kafka_names.without_effect import by_reason
from klamm.producer.config import ProducerConfig
from klamm.setting import INT_MAX, LONG_MAX, Setting, UpdateMode, definitions, render
from klamm_controller.config import ControllerConfig
from klamm_coordinator.config import CoordinatorConfig
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.configs_without_effect import configs_without_effect, reason_of
from klamm_server.config.member_config import MemberConfig
from klamm_server.config.server_config import ServiceConfig, known_configs
from klamm_server.config.topic_configs import TOPIC_CONFIGS
from pyspark_klamm.sink_options import SinkSettings
from pyspark_klamm.source_options import SourceSettings

_HEAD: Final = """# Settings

`klamm configs docs` prints this page from the definitions that the programs use, and a test compares the page with
them. If Kafka has a setting, its name and type here are Kafka's, and so are most defaults.

A server reads a setting from the command line (`--set NAME=VALUE`), from the environment
(`KLAMM_LOG_CLEANER_THREADS` is `log.cleaner.threads`) or from its file (`--config FILE`). The command line takes
precedence over the environment, and the environment over the file. `--show-config` prints all settings and where each
one is set. If a name is unknown or a value is not valid, the server prints the reason and does not start. Clients take
their settings as arguments, or as a mapping with these names.

You can change a topic's settings at any time (`klamm configs alter --topic NAME --set NAME=VALUE`). If a topic does not
set one, the first setting in the column "Follows" that is set on the broker applies. It also applies when it changes
later.

The column "At run time" shows how you can change a broker's setting while the broker runs. *cluster-wide*: on one
broker (`klamm configs alter --broker ID --set NAME=VALUE`) or on all brokers (`--all-brokers`). *per-broker*: on one
broker only. Empty: not at run time. A value that is set on the broker at run time takes precedence over one that is set
on all brokers. Then follow the broker's own file and the default (KIP-226). One change can at most double or halve a
number of threads.

A setting with the note *per listener* may have another value at one of a server's listeners. Its name is then
`listener.name.<name of the listener in lower case>.<setting>`. An example is `listener.name.external.max.connections`,
or `KLAMM_LISTENER_NAME_EXTERNAL_MAX_CONNECTIONS` in the environment. Such a value changes only with a restart.
"""
_SOURCE: Final = """Options of `spark.read.format("klamm")` and `spark.readStream.format("klamm")`. An option that
begins with `kafka.` is a setting of the clients. `kafka.isolation.level` is read_committed unless you set it, and
`kafka.max.partition.fetch.bytes` is the size of one fetch."""
_SINK: Final = """Options of `write.format("klamm")` and `writeStream.format("klamm")`. An option that begins with
`kafka.` is a setting of the producer."""
_IDLE: Final = """A server accepts Kafka's other broker configs, so that you can use a configuration of Kafka's
unchanged. They have no effect. The server checks the type of their values, and names them in its log when it starts,
each with the reason. You can change them at run time as in Kafka (`klamm configs alter`). `klamm configs describe`
shows those that are set, but never the value of a password. A controller or coordinator also accepts the settings of
brokers, which have no effect there. A server refuses only a name that Kafka does not know either. If the name is an
old one of Kafka's, the error message shows the new one."""
_NUMBERS: Final = {str(LONG_MAX): "2^63-1", str(INT_MAX): "2^31-1", render(sys.float_info.max): "no limit"}

_CLIENTS: Final[Mapping[str, type[ClientConfig]]] = {"Producers": ProducerConfig, "Consumers": ConsumerConfig}

Cells = Mapping[str, str]
"""Cells of a row by the titles of their columns."""


def reference() -> str:
    """Returns the whole reference page, without a line break at its end."""
    lines = [_HEAD]
    for server_section in _server_sections():
        lines += _table(*server_section)
    lines += _broker_configs_without_effect()
    for client_section in _client_sections():
        lines += _table(*client_section)
    return "\n".join(lines).rstrip("\n")


def document() -> dict[str, list[dict[str, Any]]]:
    """Returns all settings with an effect, by the titles of the sections."""
    sections = (*_server_sections(), *_client_sections())
    return {section.title: [_described(setting) for setting in section.settings.values()] for section in sections}


def _described(setting: Setting) -> dict[str, Any]:
    return {
        "name": setting.name,
        "documentation": setting.documentation,
        "type": setting.type.value,
        "required": setting.is_required,
        "default": None if setting.is_required else setting.default_text(),
        "valid": None if setting.validator is None else setting.validator.expected,
        "update_mode": setting.update_mode.value,
        "follows": [synonym.name for synonym in setting.synonyms],
        "per_listener": setting.per_listener,
    }


class _Section(NamedTuple):
    """A section of the page with a table of settings."""

    title: str
    text: str
    settings: Mapping[str, Setting]
    columns_of: Callable[[Setting], Cells]


def _server_sections() -> tuple[_Section, ...]:
    return (
        _Section("Topics", "", dict(sorted(TOPIC_CONFIGS.items())), _topic_columns),
        _Section("Every server", "", _known(ServiceConfig), _server_columns),
        _Section("Brokers and coordinators", "", _new(MemberConfig, ServiceConfig), _server_columns),
        _Section("Brokers", "", _new(BrokerConfig, MemberConfig), _broker_columns),
        _Section("Controllers", "", _new(ControllerConfig, ServiceConfig), _server_columns),
        _Section("Coordinators", "", _new(CoordinatorConfig, MemberConfig), _server_columns),
    )


def _client_sections() -> tuple[_Section, ...]:
    of_clients = ((name, owner, _names_without_effect(owner)) for name, owner in _CLIENTS.items())
    return (
        _Section("Every client", _names_without_effect(ClientConfig), _known(ClientConfig), _server_columns),
        *(_Section(name, text, _new(owner, ClientConfig), _server_columns) for name, owner, text in of_clients),
        _Section("Spark's source", _SOURCE, _known(SourceSettings), _server_columns),
        _Section("Spark's sink", _SINK, _known(SinkSettings), _server_columns),
    )


def _known(owner: type[Any]) -> dict[str, Setting]:
    known = known_configs(owner) if issubclass(owner, ServiceConfig) else definitions(owner)
    return dict(sorted(known.items()))


def _new(owner: type[Any], base: type[Any]) -> dict[str, Setting]:
    """Returns the settings that `owner` adds to `base` or defines differently."""
    before = _known(base)
    return {name: setting for name, setting in _known(owner).items() if before.get(name) != setting}


def _broker_configs_without_effect() -> Iterator[str]:
    idle = configs_without_effect().values()
    yield "## Kafka's broker configs without effect"
    yield ""
    yield _IDLE
    yield ""
    yield from _reasons({setting.name: reason_of(setting) for setting in idle if not setting.read_by})
    for servers in ("controllers", "coordinators"):
        names = _listed(setting.name for setting in idle if setting.read_by == servers)
        yield f"At a broker these have no effect, because the {servers} read them: {names}."
        yield ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _names_without_effect(owner: type[ClientConfig]) -> str:
    inherited = ClientConfig.WITHOUT_EFFECT if owner is not ClientConfig else {}
    own = {name: why for name, why in owner.WITHOUT_EFFECT.items() if name not in inherited}
    head = "These settings are accepted without effect, so that you can use a configuration of Kafka's unchanged:"
    return "\n".join([head, "", *_reasons(own)]).rstrip("\n")


def _reasons(reasons: Mapping[str, str]) -> Iterator[str]:
    """Yields a Markdown list with one item for each reason. The item lists the settings that `reasons` maps to that
    reason."""
    for why, names in sorted(by_reason(reasons, reasons.__getitem__).items()):
        yield f"- Because {why}: {_listed(names)}."
    yield ""


# Tables


def _table(
    title: str, text: str, settings: Mapping[str, Setting], columns_of: Callable[[Setting], Cells]
) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    if text:
        yield text
        yield ""
    rows: list[Cells] = [columns_of(setting) for setting in settings.values()]
    yield f"| {' | '.join(rows[0])} |"
    yield f"|{' --- |' * len(rows[0])}"
    for row in rows:
        yield f"| {' | '.join(text.replace('|', chr(92) + '|') for text in row.values())} |"
    yield ""


def _server_columns(setting: Setting) -> Cells:
    return {
        "Setting": f"`{setting.name}`",
        "What it is": setting.documentation + _where(setting),
        "Type": setting.type.value,
        "Default": _default(setting),
        "Valid": _valid(setting),
    }


def _where(setting: Setting) -> str:
    if setting.mechanisms:
        return " *Per listener and mechanism.*"
    return " *Per listener.*" if setting.per_listener else ""


def _broker_columns(setting: Setting) -> Cells:
    return {**_server_columns(setting), "Read by": setting.read_by or "broker", "At run time": _at_run_time(setting)}


def _topic_columns(setting: Setting) -> Cells:
    follows = ", ".join(f"`{synonym.name}`" for synonym in setting.synonyms)
    return {**_server_columns(setting), "Follows": follows}


def _default(setting: Setting) -> str:
    if setting.is_required:
        return "required"
    text = _readable(setting.default_text())
    return f"`{text}`" if text else ""


def _valid(setting: Setting) -> str:
    return "" if setting.validator is None else _readable(setting.validator.expected)


def _readable(text: str) -> str:
    for number, name in _NUMBERS.items():
        text = text.replace(number, name)
    return text


def _at_run_time(setting: Setting) -> str:
    if setting.update_mode is UpdateMode.READ_ONLY:
        return ""
    return "; ".join(filter(None, (setting.update_mode.value, setting.takes_effect)))
