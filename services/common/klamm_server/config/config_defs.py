"""The table of topic and broker configs, and the queries on it.

As in Kafka, the first of these values is in force: the one set on the topic, on the broker at run time, on all brokers
at run time, or in the broker's own file, and last the default. At each of these levels a broker config in ms wins over
its synonyms in minutes and hours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import dropwhile
from typing import Any, NamedTuple

from klamm.errors import ConfigError, ErrorCode
from klamm.setting import ConfigType, Setting, Synonym, UpdateMode, hint, split_list
from klamm.wire.v1.controller_pb2 import CONFIG_SOURCE_DEFAULT, CONFIG_SOURCE_DYNAMIC_TOPIC
from klamm_server.config.broker_configs import BROKER_CONFIGS
from klamm_server.config.configs_without_effect import configs_without_effect
from klamm_server.config.listener_settings import followed
from klamm_server.config.topic_configs import SYNONYMS, TOPIC_CONFIGS

Layer = tuple[int, Mapping[str, str]]
"""The configs of one level: (ConfigSource, text by name)."""


class Resolved(NamedTuple):
    """The effective text of a config, and its ConfigSource."""

    value: str
    source: int


@cache
def accepted_broker_configs() -> Mapping[str, Setting]:
    """The settings of a broker, and Kafka's configs that it accepts without effect, by name."""
    return {**configs_without_effect(), **BROKER_CONFIGS}


def parse(name: str, text: str, configs: Mapping[str, Setting] | None = None) -> Any:
    """Returns the typed value of a config of a topic or broker (or of those in `configs`).

    Raises InvalidConfigError, which names the config, the value and the expected values."""
    definition = _definition(name) if configs is None else configs.get(name)
    if definition is None:
        known = TOPIC_CONFIGS.keys() | accepted_broker_configs().keys() if configs is None else configs
        raise ErrorCode.INVALID_CONFIG.exception(f"unknown config {name}{hint(name, known)}")
    try:
        return definition.parse(text)
    except ConfigError as error:
        raise ErrorCode.INVALID_CONFIG.exception(str(error)) from None


def normal_text(name: str, text: str) -> str:
    """Returns the text of a config that a client sets, as Kafka shows it.

    The text has no spaces around it, and none around the items of a list. Each item is there once. Returns the texts
    of unknown names, secrets and invalid lists as they are."""
    definition = _definition(name)
    if definition is None or definition.sensitive:
        return text
    if definition.type is not ConfigType.LIST:
        return text.strip()
    try:
        return ",".join(dict.fromkeys(split_list(text)))
    except ValueError:
        return text


def validate_topic_configs(configs: Mapping[str, str]) -> None:
    """Checks all configs that are set on one topic: names, values and their combination.

    Raises InvalidConfigError."""
    values = {name: parse(name, text, TOPIC_CONFIGS) for name, text in configs.items()}
    minimum, maximum = (_own_or_default(values, name) for name in ("min.compaction.lag.ms", "max.compaction.lag.ms"))
    if minimum > maximum:
        raise ErrorCode.INVALID_CONFIG.exception(
            f"min.compaction.lag.ms={minimum} is greater than max.compaction.lag.ms={maximum}"
        )
    if values.get("retention.hold.groups"):
        for name, bound_name in _HOLD_BOUNDS:
            # Brokers may have another default of the limit. Then retention itself ignores a bound that is too small.
            if name in values:
                _check_hold_bound(name, values[name], bound_name, _own_or_default(values, bound_name))


_HOLD_BOUNDS = (("retention.ms", "retention.hold.max.ms"), ("retention.bytes", "retention.hold.max.bytes"))
"""The limits of retention, and the limits of a hold, which may not be smaller."""


def _check_hold_bound(name: str, limit: int, bound_name: str, bound: int) -> None:
    if 0 <= bound < limit:
        raise ErrorCode.INVALID_CONFIG.exception(
            f"{bound_name}={bound} is less than {name}={limit}: expected at least {limit}, or -1 for no limit"
        )


def _own_or_default(values: Mapping[str, Any], name: str) -> int:
    """Returns the number that the topic sets, or the default."""
    value = values.get(name, TOPIC_CONFIGS[name].default)
    assert isinstance(value, int), (name, value)
    return value


def validate_broker_configs(configs: Mapping[str, str], *, all_brokers: bool) -> None:
    """Checks each config that is set at run time on one broker, or on all brokers.

    Raises InvalidRequestError, as Kafka does. This includes a setting that cannot be changed there."""
    for name, text in configs.items():
        setting = accepted_broker_configs()[name]
        if setting.update_mode is UpdateMode.READ_ONLY:
            raise ErrorCode.INVALID_REQUEST.exception(f"{name} is read-only: {_where_to_set(setting)}")
        if setting.update_mode is UpdateMode.PER_BROKER and all_brokers:
            raise ErrorCode.INVALID_REQUEST.exception(f"{name} can only be set on a single broker")
        try:
            setting.parse(text)
        except ConfigError as error:
            raise ErrorCode.INVALID_REQUEST.exception(str(error)) from None


def _where_to_set(setting: Setting) -> str:
    elsewhere = setting.read_by and setting.name not in BROKER_CONFIGS
    return f"{setting.read_by} read it from their own files" if elsewhere else "set it in the broker's own file"


def resolve_topic_config(name: str, own: Mapping[str, str], layers: Sequence[Layer]) -> Resolved:
    """Returns the effective value of a topic config: the topic's own, or else the value of the brokers' `layers`
    (strongest first)."""
    if name in own:
        return Resolved(own[name], CONFIG_SOURCE_DYNAMIC_TOPIC)
    for source, configs in layers:
        for synonym in SYNONYMS.get(name, ()):
            if synonym.name in configs:
                return Resolved(_in_topic_units(synonym, configs[synonym.name]), source)
    return Resolved(TOPIC_CONFIGS[name].default_text(), CONFIG_SOURCE_DEFAULT)


def resolve_broker_config(name: str, layers: Sequence[Layer]) -> Resolved:
    """Returns the effective value of a broker config from `layers` (strongest first) and the default."""
    for source, configs in layers:
        if name in configs:
            return Resolved(configs[name], source)
    return Resolved(accepted_broker_configs()[name].default_text(), CONFIG_SOURCE_DEFAULT)


class SynonymValue(NamedTuple):
    """A value that a config has at one level."""

    name: str
    value: str
    source: int


def topic_config_synonyms(name: str, own: Mapping[str, str], layers: Sequence[Layer]) -> list[SynonymValue]:
    """Returns the values of a topic config at all levels, strongest first, as Kafka lists them."""
    values = [SynonymValue(name, own[name], CONFIG_SOURCE_DYNAMIC_TOPIC)] if name in own else []
    if names := [synonym.name for synonym in SYNONYMS.get(name, ())]:
        values += _synonyms(names[0], names, [*layers, _defaults(names)])
    return values


def broker_config_synonyms(name: str, layers: Sequence[Layer], *, with_default: bool) -> list[SynonymValue]:
    """Returns the values of a broker config at all levels, strongest first, as Kafka lists them."""
    follows = followed(name)
    names = _STAND_INS.get(name, [name]) if follows is None else [name, follows]
    return _synonyms(name, names, [*layers, _defaults(names)] if with_default else layers)


def _synonyms(first: str, names: Sequence[str], layers: Sequence[Layer]) -> list[SynonymValue]:
    """Returns the values of a config and its stand-ins, strongest first. Like Kafka, leaves out values that are
    stronger than the first value of the config itself. If only stand-ins have a value, the list is empty."""
    values = [
        SynonymValue(name, configs[name], source) for source, configs in layers for name in names if name in configs
    ]
    return list(dropwhile(lambda value: value.name != first, values))


_STAND_INS: Mapping[str, list[str]] = {
    synonym.name: [stand_in.name for stand_in in synonyms] for synonyms in SYNONYMS.values() for synonym in synonyms
}


def _defaults(names: Iterable[str]) -> Layer:
    """Returns the weakest layer: the defaults of the broker configs that have one."""
    known = accepted_broker_configs()
    settings = [known[name] for name in names if name in known]
    return CONFIG_SOURCE_DEFAULT, {setting.name: setting.default_text() for setting in settings if setting.has_default}


def effective_topic_configs(own: Mapping[str, str], *broker_layers: Mapping[str, str]) -> dict[str, str]:
    """Returns the effective text of every topic config. `broker_layers` are the strongest first (run time, all brokers,
    file)."""
    layers = [(CONFIG_SOURCE_DEFAULT, configs) for configs in broker_layers]
    return {name: resolve_topic_config(name, own, layers).value for name in TOPIC_CONFIGS}


def append_to_list(name: str, current: str, text: str) -> str:
    """Returns the LIST config after the items of `text` that it lacks were added (KIP-339's APPEND).

    Raises InvalidConfigError if `name` is not a LIST."""
    items = list(_items(name, current))
    items += [item for item in dict.fromkeys(_items(name, text)) if item not in items]
    return ",".join(items)


def subtract_from_list(name: str, current: str, text: str) -> str:
    """Returns the LIST config without the items of `text` (KIP-339's SUBTRACT).

    Raises InvalidConfigError if `name` is not a LIST."""
    gone = set(_items(name, text))
    return ",".join(item for item in _items(name, current) if item not in gone)


def _items(name: str, text: str) -> Iterable[str]:
    definition = _definition(name)
    if definition is None:
        raise ErrorCode.INVALID_CONFIG.exception(f"unknown config {name}")
    if definition.type is not ConfigType.LIST:
        raise ErrorCode.INVALID_CONFIG.exception(f"{name} is a {definition.type.value}, not a LIST")
    try:
        return split_list(text)
    except ValueError:
        raise ErrorCode.INVALID_CONFIG.exception(f"{name}: {text!r} is not valid, expected a list") from None


def _definition(name: str) -> Setting | None:
    return TOPIC_CONFIGS.get(name) or accepted_broker_configs().get(name)


def _in_topic_units(synonym: Synonym, text: str) -> str:
    """Returns a broker's hours or minutes as a topic's ms. -1 stays "no limit"."""
    if synonym.factor == 1:
        return text
    value = int(text)
    return str(value if value < 0 else value * synonym.factor)
